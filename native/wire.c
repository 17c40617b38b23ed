// Preloaded into the processes of a job by `augury run --wire`: notes when and how many bytes went
// through which TCP connection, and nothing of what they said. The file that it writes is
// described in docs/wire.md; augury/ingest/wire_file.py reads it.
//
// Every call goes to the next library first and is noted afterwards. What is noted lies in a
// mapped file: it is there even if the process is killed. A slot is claimed by one atomic addition
// and its number is written last, so that a slot half written is known as such. Once all slots are
// used the oldest are written over, which the numbers show.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define OWN_TLS __thread __attribute__((tls_model("initial-exec")))

enum { VERSION = 1, MAX_CONNECTIONS = 4096, MAX_FDS = 65536, HEADER_BYTES = 4096 };
enum { DEFAULT_EVENTS = 1 << 20, FEWEST_EVENTS = 1 << 8, MOST_EVENTS = 1 << 26 };
enum { SENT = 0, RECEIVED = 1, STATE_OF_TCP = 2 };
enum { ACCEPTED_OR_CONNECTED = 1, SEEN_LATE = 2, INHERITED = 4 };
static const uint64_t INFO_EVERY_NS = 20 * 1000 * 1000;

typedef struct {
  char magic[8];
  uint32_t version, header_bytes, connection_bytes, event_bytes;
  uint64_t max_connections, max_events;
  _Atomic uint64_t num_connections, num_events;
  _Atomic uint64_t connections_lost;
  _Atomic uint64_t is_kept, calls_not_kept, bytes_not_kept;
  int64_t pid, rank;
  uint64_t realtime_ns, monotonic_ns;
  char host[64];
} Header;

typedef struct {
  uint64_t opened_ns;
  _Atomic uint64_t closed_ns;
  _Atomic uint64_t bytes[2], calls[2];
  uint64_t inode;
  _Atomic uint64_t refused_ns[2];
  uint64_t info_ns;
  uint32_t family, flags;
  _Atomic uint32_t num_fds;
  uint16_t local_port, peer_port;
  uint8_t local[16], peer[16];
} Connection;

typedef struct {
  _Atomic uint64_t number;
  uint64_t start_ns, end_ns;
  uint64_t position;
  uint64_t refused_ns;
  uint32_t asked, done;
  uint32_t thread;
  uint16_t connection;
  uint8_t kind, reserved;
  uint64_t extra;
} Event;

_Static_assert(sizeof(Event) == 64, "an event is one cache line");
_Static_assert(sizeof(Connection) == 128, "as docs/wire.md says");

static struct {
  char folder[512];
  uint64_t max_events;
  int64_t rank;
  _Atomic(Header *) header;
  Connection *connections;
  Event *events;
  _Atomic bool is_broken;
} self;

// Zeroed by the kernel in whatever process is forked from this one, however it was forked.
static _Atomic uint32_t *is_own_process;
static _Atomic uint32_t fds[MAX_FDS];  // 0: not looked at; 1: no TCP connection; else index + 2
static _Atomic bool is_resolving;
static OWN_TLS bool is_inside;
static OWN_TLS uint32_t own_thread;

static uint64_t now_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

__attribute__((constructor)) static void read_environment(void) {
  const char *folder = getenv("AUGURY_WIRE");
  if (folder == NULL || strlen(folder) >= sizeof self.folder - 64) return;
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || madvise(page, 4096, MADV_WIPEONFORK) != 0) return;
  const char *events = getenv("AUGURY_WIRE_EVENTS"), *rank = getenv("RANK");
  long long wanted = events ? atoll(events) : DEFAULT_EVENTS;
  if (wanted < FEWEST_EVENTS) wanted = FEWEST_EVENTS;
  if (wanted > MOST_EVENTS) wanted = MOST_EVENTS;
  self.max_events = (uint64_t)wanted;
  self.rank = rank && *rank ? atoll(rank) : -1;
  atomic_store((_Atomic uint32_t *)page, 1);
  is_own_process = page;
  strcpy(self.folder, folder);  // last: from now on calls are noted
}

static void begin_again_in_forked_process(void) {
  for (int fd = 0; fd < MAX_FDS; fd++) atomic_store_explicit(&fds[fd], 0, memory_order_relaxed);
  atomic_store(&self.header, NULL);  // the mapping stays the parent's, and is not touched
  atomic_store(&self.is_broken, false);
  atomic_store(&is_resolving, false);
  atomic_store(is_own_process, 2);  // 2: whatever sockets there are may be the parent's
}

// Space is taken at once: a page that a full disk refuses later would end the process.
static Header *open_file(void) {
  char path[640], hidden[640];
  int64_t pid = getpid();
  uint64_t started_ns = now_ns(CLOCK_REALTIME);
  char who[32] = "process";
  if (self.rank >= 0) snprintf(who, sizeof who, "rank-%05lld", (long long)self.rank);
  snprintf(hidden, sizeof hidden, "%s/.%s.wire-%lld-%llx", self.folder, who, (long long)pid,
           (unsigned long long)started_ns);
  snprintf(path, sizeof path, "%s/%s.wire-%lld-%llx.bin", self.folder, who, (long long)pid,
           (unsigned long long)started_ns);
  int fd = open(hidden, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
  if (fd < 0) return NULL;
  size_t size = 0;
  for (;; self.max_events /= 4) {
    size = HEADER_BYTES + MAX_CONNECTIONS * sizeof(Connection) + self.max_events * sizeof(Event);
    if (posix_fallocate(fd, 0, (off_t)size) == 0) break;
    if (ftruncate(fd, 0) != 0 || self.max_events / 4 < FEWEST_EVENTS) {
      syscall(SYS_close, fd);
      unlink(hidden);
      return NULL;
    }
  }
  uint8_t *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  syscall(SYS_close, fd);
  if (map == MAP_FAILED) {
    unlink(hidden);
    return NULL;
  }
  Header *header = (Header *)map;
  header->version = VERSION;
  header->header_bytes = HEADER_BYTES;
  header->connection_bytes = sizeof(Connection);
  header->event_bytes = sizeof(Event);
  header->max_connections = MAX_CONNECTIONS;
  header->max_events = self.max_events;
  header->pid = pid;
  header->rank = self.rank;
  header->realtime_ns = now_ns(CLOCK_REALTIME);
  header->monotonic_ns = now_ns(CLOCK_MONOTONIC);
  atomic_store(&header->is_kept, 1);
  gethostname(header->host, sizeof header->host - 1);
  memcpy(header->magic, "AUGWIRE1", 8);
  self.connections = (Connection *)(map + HEADER_BYTES);
  self.events = (Event *)(map + HEADER_BYTES + MAX_CONNECTIONS * sizeof(Connection));
  if (rename(hidden, path) != 0) {
    munmap(map, size);
    unlink(hidden);
    return NULL;
  }
  return header;
}

static bool read_address(const struct sockaddr_storage *from, uint8_t *address, uint16_t *port) {
  if (from->ss_family == AF_INET) {
    const struct sockaddr_in *in = (const struct sockaddr_in *)from;
    memcpy(address, &in->sin_addr, 4);
    *port = ntohs(in->sin_port);
    return true;
  }
  if (from->ss_family != AF_INET6) return false;
  const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;
  if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
    memcpy(address, in6->sin6_addr.s6_addr + 12, 4);
  } else {
    memcpy(address, &in6->sin6_addr, 16);
  }
  *port = ntohs(in6->sin6_port);
  return true;
}

static uint32_t family_of(const struct sockaddr_storage *from) {
  if (from->ss_family != AF_INET6) return 4;
  return IN6_IS_ADDR_V4MAPPED(&((const struct sockaddr_in6 *)from)->sin6_addr) ? 4 : 6;
}

// What fds[fd] is to be; 0 where that cannot be told yet.
static uint32_t look_at(int fd, uint32_t flags) {
  int type = 0;
  socklen_t length = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM) return 1;
  struct sockaddr_storage local = {0}, peer = {0};
  length = sizeof local;
  Connection found = {0};
  if (getsockname(fd, (struct sockaddr *)&local, &length) != 0 ||
      !read_address(&local, found.local, &found.local_port))
    return 1;
  length = sizeof peer;
  if (getpeername(fd, (struct sockaddr *)&peer, &length) != 0) return 0;
  if (!read_address(&peer, found.peer, &found.peer_port)) return 1;
  struct stat status;
  found.inode = fstat(fd, &status) == 0 ? (uint64_t)status.st_ino : 0;
  Header *header = atomic_load(&self.header);
  if (header == NULL) {
    if (atomic_load(&self.is_broken)) return 1;
    header = open_file();
    if (header == NULL) {
      atomic_store(&self.is_broken, true);
      return 1;
    }
    atomic_store(&self.header, header);
  }
  uint64_t count = atomic_load(&header->num_connections);
  for (uint64_t i = 0; i < count; i++) {  // another descriptor of a socket that is known
    Connection *known = &self.connections[i];
    if (atomic_load(&known->closed_ns) == 0 && known->inode == found.inode &&
        known->local_port == found.local_port && known->peer_port == found.peer_port &&
        memcmp(known->peer, found.peer, 16) == 0) {
      atomic_fetch_add(&known->num_fds, 1);
      return (uint32_t)i + 2;
    }
  }
  if (count == MAX_CONNECTIONS) {
    atomic_fetch_add(&header->connections_lost, 1);
    return 1;
  }
  found.opened_ns = now_ns(CLOCK_REALTIME);
  found.family = family_of(&peer);
  found.flags = flags;
  if (flags == SEEN_LATE && atomic_load(is_own_process) == 2) found.flags |= INHERITED;
  atomic_store(&found.num_fds, 1);
  self.connections[count] = found;
  atomic_store(&header->num_connections, count + 1);
  return (uint32_t)count + 2;
}

static uint32_t resolve(int fd, uint32_t flags) {
  while (atomic_exchange(&is_resolving, true)) sched_yield();
  uint32_t state = atomic_load(&fds[fd]);
  if (state == 0) {
    state = look_at(fd, flags);
    atomic_store(&fds[fd], state);
  }
  atomic_store(&is_resolving, false);
  return state;
}

static Connection *connection_of(int fd, uint32_t flags) {
  if (self.folder[0] == '\0' || fd < 0 || fd >= MAX_FDS || is_inside) return NULL;
  if (atomic_load_explicit(is_own_process, memory_order_relaxed) == 0)
    begin_again_in_forked_process();
  uint32_t state = atomic_load_explicit(&fds[fd], memory_order_acquire);
  if (state == 0) {
    int kept = errno;
    is_inside = true;
    state = resolve(fd, flags);
    is_inside = false;
    errno = kept;
  }
  return state < 2 ? NULL : &self.connections[state - 2];
}

static Event *claim(Header *header, uint64_t *number) {
  *number = atomic_fetch_add_explicit(&header->num_events, 1, memory_order_relaxed);
  Event *event = &self.events[*number % header->max_events];
  atomic_store_explicit(&event->number, 0, memory_order_relaxed);
  atomic_thread_fence(memory_order_release);
  return event;
}

static void publish(Event *event, uint64_t number) {
  atomic_store_explicit(&event->number, number + 1, memory_order_release);
}

static void note_state_of_tcp(Header *header, Connection *connection, int fd, uint64_t at_ns) {
  if (at_ns - connection->info_ns < INFO_EVERY_NS) return;
  connection->info_ns = at_ns;
  struct tcp_info info = {0};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return;
  uint64_t number;
  Event *event = claim(header, &number);
  event->start_ns = event->end_ns = at_ns;
  event->position = info.tcpi_total_retrans;
  event->refused_ns = info.tcpi_unacked;
  event->asked = info.tcpi_rtt;
  event->done = info.tcpi_snd_cwnd;
  event->thread = own_thread;
  event->connection = (uint16_t)(connection - self.connections);
  event->kind = STATE_OF_TCP;
  event->extra = info.tcpi_min_rtt;
  publish(event, number);
}

static void note(Connection *connection, int fd, int kind, uint64_t start_ns, uint64_t asked,
                 ssize_t done) {
  Header *header = atomic_load_explicit(&self.header, memory_order_acquire);
  if (done <= 0) {
    uint64_t never = 0;
    if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      atomic_compare_exchange_strong(&connection->refused_ns[kind], &never, start_ns);
    return;
  }
  uint64_t position = atomic_fetch_add(&connection->bytes[kind], (uint64_t)done);
  atomic_fetch_add_explicit(&connection->calls[kind], 1, memory_order_relaxed);
  uint64_t refused_ns = atomic_exchange(&connection->refused_ns[kind], 0);
  if (!atomic_load_explicit(&header->is_kept, memory_order_relaxed)) {
    atomic_fetch_add_explicit(&header->calls_not_kept, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&header->bytes_not_kept, (uint64_t)done, memory_order_relaxed);
    return;
  }
  int kept = errno;
  if (own_thread == 0) own_thread = (uint32_t)syscall(SYS_gettid);
  uint64_t number, end_ns = now_ns(CLOCK_REALTIME);
  Event *event = claim(header, &number);
  event->start_ns = start_ns;
  event->end_ns = end_ns;
  event->position = position;
  event->refused_ns = refused_ns;
  event->asked = asked > UINT32_MAX ? UINT32_MAX : (uint32_t)asked;
  event->done = done > UINT32_MAX ? UINT32_MAX : (uint32_t)done;
  event->thread = own_thread;
  event->connection = (uint16_t)(connection - self.connections);
  event->kind = (uint8_t)kind;
  event->extra = 0;
  publish(event, number);
  if (kind == SENT) note_state_of_tcp(header, connection, fd, end_ns);
  errno = kept;
}

// Whether events are kept from now on; bytes are counted always. For the recorder of a framework,
// which knows when its windows begin and end.
EXPORTED void augury_wire_keep(int kept) {
  Header *header = atomic_load(&self.header);
  if (header != NULL) atomic_store(&header->is_kept, kept != 0);
}

static void forget(int fd) {
  if (self.folder[0] == '\0' || fd < 0 || fd >= MAX_FDS) return;
  uint32_t state = atomic_load(&fds[fd]);
  if (state == 0) return;
  Header *header = atomic_load(&self.header);
  // A child made by vfork closes its own descriptors, and has this memory.
  if (atomic_load(is_own_process) == 0 || (header != NULL && header->pid != getpid())) return;
  if (!atomic_compare_exchange_strong(&fds[fd], &state, 0) || state < 2) return;
  Connection *connection = &self.connections[state - 2];
  if (atomic_fetch_sub(&connection->num_fds, 1) == 1)
    atomic_store(&connection->closed_ns, now_ns(CLOCK_REALTIME));
}

#define NEXT(name)                                  \
  static __typeof__(&name) next = NULL;             \
  if (next == NULL) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define NOTED(fd, kind, asked, call)                                                     \
  Connection *connection = connection_of(fd, SEEN_LATE);                                 \
  if (connection == NULL) return call;                                                   \
  uint64_t start_ns = now_ns(CLOCK_REALTIME);                                            \
  ssize_t done = call;                                                                   \
  note(connection, fd, kind, start_ns, asked, done);                                     \
  return done

static size_t length_of(const struct iovec *vector, int count) {
  size_t length = 0;
  for (int i = 0; i < count; i++) length += vector[i].iov_len;
  return length;
}

EXPORTED ssize_t write(int fd, const void *data, size_t size) {
  NEXT(write);
  NOTED(fd, SENT, size, next(fd, data, size));
}

EXPORTED ssize_t writev(int fd, const struct iovec *vector, int count) {
  NEXT(writev);
  NOTED(fd, SENT, length_of(vector, count), next(fd, vector, count));
}

EXPORTED ssize_t send(int fd, const void *data, size_t size, int flags) {
  NEXT(send);
  NOTED(fd, SENT, size, next(fd, data, size, flags));
}

EXPORTED ssize_t sendto(int fd, const void *data, size_t size, int flags,
                        const struct sockaddr *to, socklen_t length) {
  NEXT(sendto);
  NOTED(fd, SENT, size, next(fd, data, size, flags, to, length));
}

EXPORTED ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  NEXT(sendmsg);
  NOTED(fd, SENT, length_of(message->msg_iov, (int)message->msg_iovlen),
        next(fd, message, flags));
}

EXPORTED ssize_t sendfile(int fd, int from, off_t *offset, size_t size) {
  NEXT(sendfile);
  NOTED(fd, SENT, size, next(fd, from, offset, size));
}

EXPORTED ssize_t sendfile64(int fd, int from, off64_t *offset, size_t size) {
  NEXT(sendfile64);
  NOTED(fd, SENT, size, next(fd, from, offset, size));
}

EXPORTED ssize_t read(int fd, void *data, size_t size) {
  NEXT(read);
  NOTED(fd, RECEIVED, size, next(fd, data, size));
}

EXPORTED ssize_t readv(int fd, const struct iovec *vector, int count) {
  NEXT(readv);
  NOTED(fd, RECEIVED, length_of(vector, count), next(fd, vector, count));
}

// What is only looked at is still to come.
#define ONLY_LOOKS(flags) (((flags) & (MSG_PEEK | MSG_ERRQUEUE | MSG_OOB)) != 0)

EXPORTED ssize_t recv(int fd, void *data, size_t size, int flags) {
  NEXT(recv);
  if (ONLY_LOOKS(flags)) return next(fd, data, size, flags);
  NOTED(fd, RECEIVED, size, next(fd, data, size, flags));
}

EXPORTED ssize_t recvfrom(int fd, void *data, size_t size, int flags, struct sockaddr *from,
                          socklen_t *length) {
  NEXT(recvfrom);
  if (ONLY_LOOKS(flags)) return next(fd, data, size, flags, from, length);
  NOTED(fd, RECEIVED, size, next(fd, data, size, flags, from, length));
}

EXPORTED ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
  NEXT(recvmsg);
  if (ONLY_LOOKS(flags)) return next(fd, message, flags);
  NOTED(fd, RECEIVED, length_of(message->msg_iov, (int)message->msg_iovlen),
        next(fd, message, flags));
}

static size_t length_of_all(const struct mmsghdr *messages, unsigned count) {
  size_t length = 0;
  for (unsigned i = 0; i < count; i++)
    length += length_of(messages[i].msg_hdr.msg_iov, (int)messages[i].msg_hdr.msg_iovlen);
  return length;
}

static ssize_t moved_by_all(const struct mmsghdr *messages, int count) {
  ssize_t moved = count < 0 ? -1 : 0;
  for (int i = 0; i < count; i++) moved += messages[i].msg_len;
  return moved;
}

EXPORTED int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags) {
  NEXT(sendmmsg);
  Connection *connection = connection_of(fd, SEEN_LATE);
  if (connection == NULL) return next(fd, messages, count, flags);
  uint64_t start_ns = now_ns(CLOCK_REALTIME);
  size_t asked = length_of_all(messages, count);
  int done = next(fd, messages, count, flags);
  note(connection, fd, SENT, start_ns, asked, moved_by_all(messages, done));
  return done;
}

EXPORTED int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags,
                      struct timespec *timeout) {
  NEXT(recvmmsg);
  Connection *connection = ONLY_LOOKS(flags) ? NULL : connection_of(fd, SEEN_LATE);
  if (connection == NULL) return next(fd, messages, count, flags, timeout);
  uint64_t start_ns = now_ns(CLOCK_REALTIME);
  size_t asked = length_of_all(messages, count);
  int done = next(fd, messages, count, flags, timeout);
  note(connection, fd, RECEIVED, start_ns, asked, moved_by_all(messages, done));
  return done;
}

// What fortified programs call in place of the plain ones.
EXPORTED ssize_t __read_chk(int fd, void *data, size_t size, size_t room);
EXPORTED ssize_t __read_chk(int fd, void *data, size_t size, size_t room) {
  NEXT(__read_chk);
  NOTED(fd, RECEIVED, size, next(fd, data, size, room));
}

EXPORTED ssize_t __recv_chk(int fd, void *data, size_t size, size_t room, int flags);
EXPORTED ssize_t __recv_chk(int fd, void *data, size_t size, size_t room, int flags) {
  NEXT(__recv_chk);
  if (ONLY_LOOKS(flags)) return next(fd, data, size, room, flags);
  NOTED(fd, RECEIVED, size, next(fd, data, size, room, flags));
}

EXPORTED ssize_t __recvfrom_chk(int fd, void *data, size_t size, size_t room, int flags,
                                struct sockaddr *from, socklen_t *length);
EXPORTED ssize_t __recvfrom_chk(int fd, void *data, size_t size, size_t room, int flags,
                                struct sockaddr *from, socklen_t *length) {
  NEXT(__recvfrom_chk);
  if (ONLY_LOOKS(flags)) return next(fd, data, size, room, flags, from, length);
  NOTED(fd, RECEIVED, size, next(fd, data, size, room, flags, from, length));
}

// A descriptor that is made anew is looked at anew, whatever had its number.
EXPORTED int socket(int family, int type, int protocol) {
  NEXT(socket);
  int fd = next(family, type, protocol);
  forget(fd);
  return fd;
}

EXPORTED int connect(int fd, const struct sockaddr *to, socklen_t length) {
  NEXT(connect);
  int done = next(fd, to, length);
  if (done == 0) (void)connection_of(fd, ACCEPTED_OR_CONNECTED);
  return done;
}

EXPORTED int accept(int fd, struct sockaddr *from, socklen_t *length) {
  NEXT(accept);
  int accepted = next(fd, from, length);
  forget(accepted);
  (void)connection_of(accepted, ACCEPTED_OR_CONNECTED);
  return accepted;
}

EXPORTED int accept4(int fd, struct sockaddr *from, socklen_t *length, int flags) {
  NEXT(accept4);
  int accepted = next(fd, from, length, flags);
  forget(accepted);
  (void)connection_of(accepted, ACCEPTED_OR_CONNECTED);
  return accepted;
}

EXPORTED int close(int fd) {
  NEXT(close);
  int kept = errno;
  forget(fd);
  errno = kept;
  return next(fd);
}

EXPORTED int dup2(int from, int to) {
  NEXT(dup2);
  int done = next(from, to);
  if (done >= 0 && from != to) forget(to);
  return done;
}

EXPORTED int dup3(int from, int to, int flags) {
  NEXT(dup3);
  int done = next(from, to, flags);
  if (done >= 0) forget(to);
  return done;
}

EXPORTED int close_range(unsigned first, unsigned last, int flags) {
  NEXT(close_range);
  if ((flags & CLOSE_RANGE_CLOEXEC) == 0)
    for (unsigned fd = first; fd <= last && fd < MAX_FDS; fd++) forget((int)fd);
  return next(first, last, flags);
}
