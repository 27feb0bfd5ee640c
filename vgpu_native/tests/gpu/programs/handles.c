/* Memory of one process that another one imports: it stays in use when its maker releases it.
 *
 *   handles vmm|ipc    64 MiB by a shareable handle of cuMemCreate, or by cuIpcGetMemHandle
 *
 * The maker prints the steps. The importer is forked before the driver is used. */
#include "gpu.h"

#include <sys/prctl.h>
#include <signal.h>
#include <sys/socket.h>

static const size_t BYTES = 64 * MIB;
static int ends[2];

static CUmemAllocationProp exported(void) {
  return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}}};
}

static void send_message(int to, const void *data, size_t size, int file) {
  char room[CMSG_SPACE(sizeof file)] = {0};
  struct iovec part = {(void *)data, size};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  if (file >= 0) {
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(head), &file, sizeof file);
  }
  if (sendmsg(to, &message, 0) != (ssize_t)size) exit(1);
}

/* Return the file that came with a message, -1 for none. */
static int receive_message(int from, void *data, size_t size) {
  char room[CMSG_SPACE(sizeof(int))];
  struct iovec part = {data, size};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  int file = -1;
  if (recvmsg(from, &message, 0) != (ssize_t)size) exit(1);
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  if (head && head->cmsg_type == SCM_RIGHTS) memcpy(&file, CMSG_DATA(head), sizeof file);
  return file;
}

static void await_peer(int from) {
  char byte;
  receive_message(from, &byte, 1);
}

static void import_vmm(int from) {
  CUmemGenericAllocationHandle handle;
  CUdeviceptr at;
  char byte;
  int file = receive_message(from, &byte, 1);
  MUST(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  MUST(cuMemAddressReserve(&at, BYTES, 0, 0, 0));
  MUST(cuMemMap(at, BYTES, 0, handle, 0));
  MUST(cuMemRelease(handle));
  close(file);
  send_message(from, "m", 1, -1);
  await_peer(from);
  MUST(cuMemUnmap(at, BYTES));
  MUST(cuMemAddressFree(at, BYTES));
}

static void import_ipc(int from) {
  CUipcMemHandle handle;
  CUdeviceptr at;
  receive_message(from, &handle, sizeof handle);
  MUST(cuIpcOpenMemHandle(&at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  send_message(from, "m", 1, -1);
  await_peer(from);
  MUST(cuIpcCloseMemHandle(at));
}

static void import(int from, int vmm) {
  open_device();
  send_message(from, "o", 1, -1);
  if (vmm) import_vmm(from);
  else import_ipc(from);
  send_message(from, "r", 1, -1);
  await_peer(from);
  exit(0);
}

static void share_vmm(int to, CUmemGenericAllocationHandle *handle) {
  CUmemAllocationProp wanted = exported();
  int file = -1;
  MUST(cuMemCreate(handle, BYTES, &wanted, 0));
  MUST(cuMemExportToShareableHandle(&file, *handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  step("made", CUDA_SUCCESS);
  send_message(to, "f", 1, file);
  close(file);
}

static void share_ipc(int to, CUdeviceptr *at) {
  CUipcMemHandle handle;
  MUST(cuMemAlloc(at, BYTES));
  MUST(cuIpcGetMemHandle(&handle, *at));
  step("made", CUDA_SUCCESS);
  send_message(to, &handle, sizeof handle, -1);
}

int main(int count, char **arguments) {
  int vmm = count > 1 && !strcmp(arguments[1], "vmm");
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr at = 0, besides = 0;
  pid_t parent = getpid();
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends)) return 1;
  if (fork() == 0) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent) return 1;
    close(ends[0]);
    import(ends[1], vmm);
  }
  close(ends[1]);
  open_device();
  await_peer(ends[0]); /* its context is charged, too */
  step("context", CUDA_SUCCESS);
  if (vmm) share_vmm(ends[0], &handle);
  else share_ipc(ends[0], &at);
  await_peer(ends[0]);
  step("imported", CUDA_SUCCESS);
  if (vmm) MUST(cuMemRelease(handle));
  else MUST(cuMemFree(at));
  step("released by its maker", CUDA_SUCCESS);
  step("as much again", cuMemAlloc(&besides, BYTES));
  send_message(ends[0], "g", 1, -1);
  await_peer(ends[0]);
  step("released by its importer", CUDA_SUCCESS);
  send_message(ends[0], "e", 1, -1);
  return 0;
}
