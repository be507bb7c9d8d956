/* Messages back and forth between two processes: `pingpong [bytes [count]]`. Build: cc pingpong.c -lvipl */
#include "common.h"
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 64 };

int main(int argc, char **argv) {
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 0) : 4;
    int count = argc > 2 ? atoi(argv[2]) : 100000;
    char name[32];
    snprintf(name, sizeof name, "pingpong %d", (int)getpid());
    int client = fork() == 0;

    struct nic nic;
    open_nic(&nic);

    /* memory that both sides map: descriptors, one buffer to send, the rest to receive */
    VIP_MEM_ATTRIBUTES of_memory = {nic.tag, VIP_FALSE, VIP_FALSE};
    VIP_MEM_HANDLE handle;
    VIP_PVOID start;
    OK(VipxAllocMem(nic.handle, (WINDOW + 1) * (sizeof(VIP_DESCRIPTOR) + bytes), &of_memory, &start, &handle));
    VIP_DESCRIPTOR *descriptors = start;
    char *buffers = (char *)(descriptors + WINDOW + 1);
    for (int i = 0; i <= WINDOW; i++) {
        descriptors[i].CS.SegCount = 1;
        descriptors[i].CS.Length = (VIP_UINT32)bytes;
        descriptors[i].DS[0].Local.Data.Address = buffers + (size_t)i * bytes;
        descriptors[i].DS[0].Local.Handle = handle;
        descriptors[i].DS[0].Local.Length = (VIP_UINT32)bytes;
    }

    VIP_VI_HANDLE vi;
    VIP_VI_ATTRIBUTES of_vi = {VIP_SERVICE_RELIABLE_DELIVERY, nic.about.MaxTransferSize, NULL, nic.tag, VIP_FALSE, VIP_FALSE};
    OK(VipCreateVi(nic.handle, &of_vi, NULL, NULL, &vi));
    for (int i = 0; i < WINDOW; i++) OK(VipPostRecv(vi, &descriptors[i], handle));
    if (client)
        request(&nic, vi, name);
    else
        serve(&nic, vi, name);

    struct timespec begin, end;
    VIP_DESCRIPTOR *done;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < count; i++) {
        if (client) {
            send_and_wait(vi, &descriptors[WINDOW], handle);
        }
        OK(VipRecvWait(vi, VIP_INFINITE, &done));
        OK(VipPostRecv(vi, done, handle));
        if (!client) {
            send_and_wait(vi, &descriptors[WINDOW], handle);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (client) printf("%zu bytes: %.3f us one way\n", bytes, ((double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) / 1e3) / 2 / count);

    end_vi(vi);
    OK(VipxFreeMem(nic.handle, start, handle));
    close_nic(&nic);
    if (client) return 0;
    int status;
    wait(&status);
    return status != 0;
}
