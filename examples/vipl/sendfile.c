/* A client sends a file to a server: `sendfile serve NAME OUT` in one place, `sendfile send NAME FILE` in another. The server takes one file. Data lie
 * in the program's own memory (a shadow segment behind it); an empty message ends the file. */
#include "common.h"

enum { PIECES = 16, PIECE_BYTES = 64 << 10 };

int main(int argc, char **argv) {
    if (argc != 4 || strlen(argv[2]) > 50) {
        fprintf(stderr, "usage: sendfile serve|send NAME FILE\n");
        return 2;
    }
    int server = !strcmp(argv[1], "serve");
    FILE *file = fopen(argv[3], server ? "wb" : "rb");
    if (!file) {
        perror(argv[3]);
        return 1;
    }
    struct nic nic;
    VIP_MEM_HANDLE handle;
    VIP_VI_HANDLE vi;
    open_nic(&nic);
    VIP_MEM_ATTRIBUTES of_memory = {nic.tag, VIP_FALSE, VIP_FALSE};
    size_t bytes = PIECES * (sizeof(VIP_DESCRIPTOR) + PIECE_BYTES) + 2 * sizeof(VIP_DESCRIPTOR);
    char *memory = aligned_alloc(64, bytes / 64 * 64 + 64);
    memset(memory, 0, bytes);
    OK(VipRegisterMem(nic.handle, memory, bytes, &of_memory, &handle));
    VIP_DESCRIPTOR *descriptors = (VIP_DESCRIPTOR *)memory, *go = descriptors + PIECES, *done;
    char *pieces = (char *)(go + 2);
    for (int i = 0; i < PIECES; i++) {
        descriptors[i].CS.SegCount = 1;
        descriptors[i].DS[0].Local.Data.Address = pieces + i * PIECE_BYTES;
        descriptors[i].DS[0].Local.Handle = handle;
        descriptors[i].DS[0].Local.Length = PIECE_BYTES;
    }
    VIP_VI_ATTRIBUTES of_vi = {VIP_SERVICE_RELIABLE_DELIVERY, PIECE_BYTES, NULL, nic.tag, VIP_FALSE, VIP_FALSE}, theirs;
    OK(VipCreateVi(nic.handle, &of_vi, NULL, NULL, &vi));
    long total = 0;
    if (server) {
        for (int i = 0; i < PIECES; i++) OK(VipPostRecv(vi, &descriptors[i], handle));
        serve(&nic, vi, argv[2]);
        for (;;) {
            OK(VipRecvWait(vi, VIP_INFINITE, &done));
            if (!done->CS.Length) break;
            if (fwrite(done->DS[0].Local.Data.Address, 1, done->CS.Length, file) != done->CS.Length) return 1;
            total += done->CS.Length;
            /* the piece may be used again: post it, and say so with an empty message */
            OK(VipPostRecv(vi, done, handle));
            send_and_wait(vi, go, handle);
        }
        if (fclose(file)) return 1;
        send_and_wait(vi, go, handle); /* all is written */
        VIP_VI_STATE state = VIP_STATE_CONNECTED;
        VIP_BOOLEAN a, b;
        while (state == VIP_STATE_CONNECTED) OK(VipQueryVi(vi, &state, &theirs, &a, &b));
    } else {
        /* descriptors without data: as many answers may be under way as pieces */
        static VIP_DESCRIPTOR answers[PIECES + 1] __attribute__((aligned(64)));
        VIP_MEM_HANDLE of_answers;
        OK(VipRegisterMem(nic.handle, answers, sizeof answers, &of_memory, &of_answers));
        for (int i = 0; i <= PIECES; i++) OK(VipPostRecv(vi, &answers[i], of_answers));
        request(&nic, vi, argv[2]);
        int free_pieces = PIECES, at = 0;
        for (size_t read; (read = fread(pieces + at * PIECE_BYTES, 1, PIECE_BYTES, file)) > 0; at = (at + 1) % PIECES) {
            VIP_DESCRIPTOR *d = &descriptors[at];
            d->CS.Length = d->DS[0].Local.Length = (VIP_UINT32)read;
            send_and_wait(vi, d, handle);
            total += (long)read;
            for (free_pieces--; !free_pieces; free_pieces++) {
                OK(VipRecvWait(vi, VIP_INFINITE, &done));
                OK(VipPostRecv(vi, done, of_answers));
            }
        }
        for (; free_pieces < PIECES; free_pieces++) OK(VipRecvWait(vi, VIP_INFINITE, &done));
        send_and_wait(vi, go, handle);
        OK(VipRecvWait(vi, VIP_INFINITE, &done));
        OK(VipDisconnect(vi));
        while (VipRecvDone(vi, &done) != VIP_NOT_DONE && done) continue;
        OK(VipDeregisterMem(nic.handle, answers, of_answers));
    }
    printf("%s: %ld bytes\n", argv[1], total);
    end_vi(vi);
    OK(VipDeregisterMem(nic.handle, memory, handle));
    close_nic(&nic);
    free(memory);
    return 0;
}
