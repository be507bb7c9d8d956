"""What an ordinary mpi4py program does; run on several hosts by launchers.py."""

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
host = world.Split_type(MPI.COMM_TYPE_SHARED)
names = world.allgather(MPI.Get_processor_name())
here = sum(name == names[rank] for name in names)

right, left = (rank + 1) % size, (rank - 1) % size
words = world.sendrecv({"from": rank, "text": "x" * 100_000}, dest=right, source=left)
good = words == {"from": left, "text": "x" * 100_000}
good &= world.allreduce(rank) == size * (size - 1) // 2
good &= world.alltoall([rank * size + other for other in range(size)]) == [other * size + rank for other in range(size)]

sent = bytearray(bytes(range(256)) * 8192)
got = bytearray(len(sent))
requests = [world.Irecv(got, source=left, tag=5), world.Isend(sent, dest=right, tag=5)]
MPI.Request.Waitall(requests)
good &= got == sent
answers = world.gather((rank, host.size, here, good))
if rank == 0:
    for one, near, same, right in answers:
        print(f"rank {one} of {size}: {near} share memory, {same} on its host, {'good' if right else 'BAD'}", flush=True)
