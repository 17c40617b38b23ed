// Preloaded into the processes of a job by `augury run --wire`: records times and sizes of calls on
// TCP connections, but none of their contents. docs/wire.md describes the file that it writes;
// augury/ingest/wire/wire_file.py reads it.
//
// Every call goes to the next library first and is recorded afterwards, in a mapped file that
// survives if the process is killed. A slot is claimed by one atomic addition and its number is
// written last, so that an incomplete slot is recognized. When all slots are used, the oldest are
// overwritten, which the numbers show.

// With these macros the headers would replace the functions that are defined here.
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define OWN_TLS __thread __attribute__((tls_model("initial-exec")))

enum { VERSION = 1, MAX_CONNECTIONS = 4096, MAX_FDS = 1 << 20, HEADER_BYTES = 4096 };
enum { DEFAULT_EVENTS = 1 << 20, FEWEST_EVENTS = 1 << 8, MOST_EVENTS = 1 << 26 };
enum { SENT = 0, RECEIVED = 1, STATE_OF_TCP = 2 };
enum { SEEN_FROM_ITS_BEGINNING = 1, SEEN_LATE = 2, INHERITED = 4 };
// State of a descriptor; values from FIRST_ROW on are the row of its connection.
enum { UNKNOWN = 0, NO_TCP_CONNECTION = 1, MADE_HERE = 2, FIRST_ROW = 3 };
enum { JUST_FORKED = 0, STARTED = 1, FORKED = 2, BEGINNING = 3 };
static const uint64_t INFO_EVERY_NS = 20 * 1000 * 1000;
static const uint64_t PATIENCE_NS = 10ull * 1000 * 1000 * 1000;

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
  _Atomic uint64_t info_ns;
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
  _Atomic bool is_broken, is_kept;
} self;

// The kernel zeroes this in every forked process, however it was forked.
typedef struct {
  _Atomic uint32_t life;
  _Atomic bool is_resolving, is_stuck;
  _Atomic int highest_fd;
  _Atomic pid_t pid;  // a child made by vfork shares this memory but has another pid
  _Atomic uint32_t fds[MAX_FDS];
} Own;

static Own *own;  // NULL: nothing is recorded
static OWN_TLS volatile bool is_inside;
static OWN_TLS uint32_t own_thread;
static OWN_TLS pid_t own_thread_pid;  // a forked thread has another number

// Allocators call syscall() before they are ready, and dlsym may allocate. Until the next library's
// function is known, and for calls of this file, the kernel is called without libc.
static long raw_syscall(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
  long done;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(done)
                   : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
#elif defined(__aarch64__)
  register long x8 __asm__("x8") = number;
  register long done __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0"
                   : "+r"(done)
                   : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                   : "memory");
#else
#error "only for x86-64 and arm64"
#endif
  if (done >= 0 || done < -4095) return done;
  errno = (int)-done;
  return -1;
}

static uint64_t now_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// The environment is untrusted: a value that is not a number, or too large, counts as missing.
static long long number_in(const char *name, long long most, long long otherwise) {
  const char *text = secure_getenv(name);
  if (text == NULL || text[0] < '0' || text[0] > '9') return otherwise;
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  return *end != '\0' || errno != 0 || number > most ? otherwise : number;
}

static void begin_in_forked_process(void) {
  uint32_t life = JUST_FORKED;
  if (atomic_compare_exchange_strong(&own->life, &life, BEGINNING)) {
    atomic_store(&self.header, NULL);  // the mapping belongs to the parent and is not used
    atomic_store(&self.is_broken, false);
    atomic_store(&self.is_kept, true);
    atomic_store(&own->pid, getpid());
    atomic_store(&own->life, FORKED);
  }
  while (atomic_load(&own->life) == BEGINNING) sched_yield();
}

static void find_next(void);

__attribute__((constructor)) static void read_environment(void) {
  int kept = errno;
  find_next();
  const char *folder = secure_getenv("AUGURY_WIRE");
  if (folder == NULL || folder[0] != '/' || strlen(folder) >= sizeof self.folder) return;
  Own *map = mmap(NULL, sizeof *map, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return;
  (void)madvise(map, sizeof *map, MADV_NOHUGEPAGE);
  if (madvise(map, sizeof *map, MADV_WIPEONFORK) != 0) {
    munmap(map, sizeof *map);
    return;
  }
  long long wanted = number_in("AUGURY_WIRE_EVENTS", INT64_MAX, DEFAULT_EVENTS);
  if (wanted < FEWEST_EVENTS) wanted = FEWEST_EVENTS;
  if (wanted > MOST_EVENTS) wanted = MOST_EVENTS;
  self.max_events = (uint64_t)wanted;
  self.rank = number_in("RANK", 999999, -1);
  strcpy(self.folder, folder);
  atomic_store(&self.is_kept, true);
  atomic_store(&map->pid, getpid());
  atomic_store(&map->life, STARTED);
  own = map;  // last: calls are recorded from now on
  // A forked process is detected before its first call; one made by a bare clone, later.
  (void)pthread_atfork(NULL, NULL, begin_in_forked_process);
  errno = kept;
}

// Space is allocated at once: a page that a full disk refuses later would kill the process.
static Header *open_file(void) {
  char path[sizeof self.folder + 96], hidden[sizeof self.folder + 96];
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
  struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
  (void)getrlimit(RLIMIT_FSIZE, &limit);  // writing beyond it raises a signal
  size_t size = 0;
  for (;; self.max_events /= 4) {
    size = HEADER_BYTES + MAX_CONNECTIONS * sizeof(Connection) + self.max_events * sizeof(Event);
    int trouble = size > limit.rlim_cur ? EFBIG : EINTR;
    for (int i = 0; i < 100 && trouble == EINTR; i++)
      trouble = posix_fallocate(fd, 0, (off_t)size);
    if (trouble == 0) break;
    if (ftruncate(fd, 0) != 0 || self.max_events / 4 < FEWEST_EVENTS) {
      raw_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
      unlink(hidden);
      return NULL;
    }
  }
  uint8_t *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  raw_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
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
  atomic_store(&header->is_kept, atomic_load(&self.is_kept));
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

// Returns the state of fd; UNKNOWN if it cannot be determined yet.
static uint32_t look_at(int fd, uint32_t flags) {
  int type = 0;
  socklen_t length = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM)
    return NO_TCP_CONNECTION;
  struct sockaddr_storage local = {0}, peer = {0};
  length = sizeof local;
  Connection found = {0};
  if (getsockname(fd, (struct sockaddr *)&local, &length) != 0 ||
      !read_address(&local, found.local, &found.local_port))
    return NO_TCP_CONNECTION;
  length = sizeof peer;
  if (getpeername(fd, (struct sockaddr *)&peer, &length) != 0) return UNKNOWN;
  if (!read_address(&peer, found.peer, &found.peer_port)) return NO_TCP_CONNECTION;
  struct stat status;
  found.inode = fstat(fd, &status) == 0 ? (uint64_t)status.st_ino : 0;
  Header *header = atomic_load(&self.header);
  if (header == NULL) {
    if (atomic_load(&self.is_broken)) return NO_TCP_CONNECTION;
    header = open_file();
    if (header == NULL) {
      atomic_store(&self.is_broken, true);
      return NO_TCP_CONNECTION;
    }
    atomic_store(&self.header, header);
    atomic_store(&header->is_kept, atomic_load(&self.is_kept));
  }
  uint64_t count = atomic_load(&header->num_connections);
  // Another descriptor of a known socket, even if all known ones are closed.
  for (uint64_t i = 0; i < count && found.inode != 0; i++) {
    Connection *known = &self.connections[i];
    if (known->inode == found.inode && known->local_port == found.local_port &&
        known->peer_port == found.peer_port && memcmp(known->peer, found.peer, 16) == 0) {
      atomic_fetch_add(&known->num_fds, 1);
      atomic_store(&known->closed_ns, 0);
      return (uint32_t)i + FIRST_ROW;
    }
  }
  if (count == MAX_CONNECTIONS) {
    atomic_fetch_add(&header->connections_lost, 1);
    return NO_TCP_CONNECTION;
  }
  found.opened_ns = now_ns(CLOCK_REALTIME);
  found.family = family_of(&peer);
  found.flags = flags;
  if (flags == SEEN_LATE && atomic_load(&own->life) == FORKED) found.flags |= INHERITED;
  atomic_store(&found.num_fds, 1);
  self.connections[count] = found;
  atomic_store(&header->num_connections, count + 1);
  return (uint32_t)count + FIRST_ROW;
}

static void leave(uint32_t state) {
  Connection *connection = &self.connections[state - FIRST_ROW];
  if (atomic_fetch_sub(&connection->num_fds, 1) == 1)
    atomic_store(&connection->closed_ns, now_ns(CLOCK_REALTIME));
}

// A thread that ends within a signal handler may keep the lock. New descriptors are then no longer
// examined, and no thread waits for the lock.
static bool take_turn(void) {
  uint64_t since_ns = 0;
  for (unsigned i = 1; atomic_exchange(&own->is_resolving, true); i++) {
    if (i % 1024 == 0) {
      uint64_t at_ns = now_ns(CLOCK_MONOTONIC);
      if (since_ns == 0) since_ns = at_ns;
      if (at_ns - since_ns > PATIENCE_NS) atomic_store(&own->is_stuck, true);
    }
    if (atomic_load(&own->is_stuck)) return false;
    sched_yield();
  }
  return true;
}

static uint32_t resolve(int fd, uint32_t flags) {
  uint32_t state = atomic_load(&own->fds[fd]);
  if (!take_turn()) {
    Header *header = atomic_load(&self.header);
    if (header != NULL && (state == MADE_HERE || flags == SEEN_FROM_ITS_BEGINNING))
      atomic_fetch_add(&header->connections_lost, 1);
    atomic_compare_exchange_strong(&own->fds[fd], &state, NO_TCP_CONNECTION);
    return UNKNOWN;
  }
  state = atomic_load(&own->fds[fd]);
  if (state == UNKNOWN || state == MADE_HERE) {
    uint32_t found = look_at(fd, state == MADE_HERE ? SEEN_FROM_ITS_BEGINNING : flags);
    if (found != UNKNOWN) {
      if (fd > atomic_load(&own->highest_fd)) atomic_store(&own->highest_fd, fd);
      if (atomic_compare_exchange_strong(&own->fds[fd], &state, found)) {
        state = found;
      } else if (found >= FIRST_ROW) {
        leave(found);  // closed by another thread in the meantime
      }
    }
  }
  atomic_store(&own->is_resolving, false);
  return state;
}

// An unknown descriptor is not examined in a signal handler that interrupted such an examination,
// nor in a child made by vfork. A thread that is cancelled would leave the others waiting.
static uint32_t resolve_safely(int fd, uint32_t flags) {
  int kept = errno, cancelling = PTHREAD_CANCEL_ENABLE;
  is_inside = true;
  if (atomic_load(&own->life) == JUST_FORKED) begin_in_forked_process();
  uint32_t state = UNKNOWN;
  if (atomic_load(&own->pid) == getpid()) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
    state = resolve(fd, flags);
    pthread_setcancelstate(cancelling, NULL);
  }
  is_inside = false;
  errno = kept;
  return state;
}

static Connection *connection_of(int fd, uint32_t flags) {
  if (own == NULL || fd < 0) return NULL;
  if (fd >= MAX_FDS) {
    Header *header = atomic_load(&self.header);
    if (header != NULL && flags == SEEN_FROM_ITS_BEGINNING)
      atomic_fetch_add(&header->connections_lost, 1);
    return NULL;
  }
  uint32_t state = atomic_load_explicit(&own->fds[fd], memory_order_acquire);
  if (state == NO_TCP_CONNECTION) return NULL;
  if (state < FIRST_ROW) {
    if (is_inside) return NULL;
    state = resolve_safely(fd, flags);
  }
  return state < FIRST_ROW ? NULL : &self.connections[state - FIRST_ROW];
}

// The call that is recorded may connect it, or one just before.
static bool may_connect(int fd) {
  if (own == NULL || fd < 0 || fd >= MAX_FDS) return false;
  uint32_t state = atomic_load_explicit(&own->fds[fd], memory_order_relaxed);
  return state == UNKNOWN || state == MADE_HERE;
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
  uint64_t before_ns = atomic_load_explicit(&connection->info_ns, memory_order_relaxed);
  if (at_ns - before_ns < INFO_EVERY_NS ||
      !atomic_compare_exchange_strong(&connection->info_ns, &before_ns, at_ns))
    return;
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
  uintptr_t offset = (uintptr_t)connection - (uintptr_t)self.connections;
  // A signal handler may have forked during the call: in the child this row is the parent's.
  if (header == NULL || offset >= MAX_CONNECTIONS * sizeof(Connection)) return;
  if (done <= 0) {
    uint64_t never = 0;
    if (done < 0 && errno == EAGAIN)
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
  pid_t pid = atomic_load_explicit(&own->pid, memory_order_relaxed);
  if (own_thread_pid != pid) {
    own_thread = (uint32_t)raw_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0);
    own_thread_pid = pid;
  }
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

// Sets whether events are kept from now on; bytes are always counted. The recorder of a framework
// calls this where its windows begin and end.
EXPORTED void augury_wire_keep(int kept);
EXPORTED void augury_wire_keep(int kept) {
  if (own == NULL || atomic_load(&own->pid) != getpid()) return;
  atomic_store(&self.is_kept, kept != 0);
  Header *header = atomic_load(&self.header);
  if (header != NULL) atomic_store(&header->is_kept, kept != 0);
}

// ``state`` is its new state.
static void forget(int fd, uint32_t state) {
  if (own == NULL || fd < 0 || fd >= MAX_FDS) return;
  uint32_t before = atomic_load(&own->fds[fd]);
  // A child made by vfork closes its own descriptors, but shares this memory.
  if (before == state || atomic_load(&own->pid) != getpid()) return;
  if (atomic_compare_exchange_strong(&own->fds[fd], &before, state) && before >= FIRST_ROW)
    leave(before);
  if (state != UNKNOWN && fd > atomic_load(&own->highest_fd))
    atomic_store(&own->highest_fd, fd);
}

// Functions that fortified programs call instead of the plain ones, and that old headers lack.
EXPORTED ssize_t __read_chk(int fd, void *data, size_t size, size_t room);
EXPORTED ssize_t __recv_chk(int fd, void *data, size_t size, size_t room, int flags);
EXPORTED ssize_t __recvfrom_chk(int fd, void *data, size_t size, size_t room, int flags,
                                struct sockaddr *from, socklen_t *length);
EXPORTED int close_range(unsigned first, unsigned last, int flags);
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define ALL_NEXT(DO)                                                                       \
  DO(write) DO(writev) DO(send) DO(sendto) DO(sendmsg) DO(sendmmsg) DO(sendfile)           \
  DO(sendfile64) DO(read) DO(readv) DO(recv) DO(recvfrom) DO(recvmsg) DO(recvmmsg)         \
  DO(__read_chk) DO(__recv_chk) DO(__recvfrom_chk) DO(socket) DO(connect) DO(accept)       \
  DO(accept4) DO(close) DO(dup2) DO(dup3) DO(close_range) DO(syscall)
#define DECLARE(name) static __typeof__(&name) next_##name;
#define FIND(name) \
  __atomic_store_n(&next_##name, (__typeof__(&name))dlsym(RTLD_NEXT, #name), __ATOMIC_RELAXED);

ALL_NEXT(DECLARE)

// All at once and early: dlsym is not safe in signal handlers and children made by vfork.
static void find_next(void) { ALL_NEXT(FIND) }

// Other libraries may start before this one.
#define NEXT(name)                                                                          \
  __typeof__(&name) next = __atomic_load_n(&next_##name, __ATOMIC_RELAXED);                 \
  if (next == NULL) {                                                                       \
    find_next();                                                                            \
    next = __atomic_load_n(&next_##name, __ATOMIC_RELAXED);                                 \
  }

// ``asked`` reads the arguments of the caller, after the kernel has accepted them.
#define NOTED_AS(type, fd, kind, asked, call, moved)                                        \
  Connection *connection = connection_of(fd, SEEN_LATE);                                    \
  if (connection == NULL && !may_connect(fd)) return call;                                  \
  uint64_t start_ns = now_ns(CLOCK_REALTIME);                                               \
  type done = call;                                                                         \
  if (connection == NULL && done > 0) connection = connection_of(fd, SEEN_LATE);            \
  if (connection != NULL) note(connection, fd, kind, start_ns, done > 0 ? (asked) : 0, moved); \
  return done
#define NOTED(fd, kind, asked, call) NOTED_AS(ssize_t, fd, kind, asked, call, done)

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

// Data that is only peeked at will be received later.
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
  NOTED_AS(int, fd, SENT, length_of_all(messages, (unsigned)done),
           next(fd, messages, count, flags), moved_by_all(messages, done));
}

EXPORTED int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags,
                      struct timespec *timeout) {
  NEXT(recvmmsg);
  if (ONLY_LOOKS(flags)) return next(fd, messages, count, flags, timeout);
  NOTED_AS(int, fd, RECEIVED, length_of_all(messages, (unsigned)done),
           next(fd, messages, count, flags, timeout), moved_by_all(messages, done));
}

EXPORTED ssize_t __read_chk(int fd, void *data, size_t size, size_t room) {
  NEXT(__read_chk);
  NOTED(fd, RECEIVED, size, next(fd, data, size, room));
}

EXPORTED ssize_t __recv_chk(int fd, void *data, size_t size, size_t room, int flags) {
  NEXT(__recv_chk);
  if (ONLY_LOOKS(flags)) return next(fd, data, size, room, flags);
  NOTED(fd, RECEIVED, size, next(fd, data, size, room, flags));
}

EXPORTED ssize_t __recvfrom_chk(int fd, void *data, size_t size, size_t room, int flags,
                                struct sockaddr *from, socklen_t *length) {
  NEXT(__recvfrom_chk);
  if (ONLY_LOOKS(flags)) return next(fd, data, size, room, flags, from, length);
  NOTED(fd, RECEIVED, size, next(fd, data, size, room, flags, from, length));
}

// A new descriptor is examined again, whatever had its number before.
EXPORTED int socket(int family, int type, int protocol) {
  NEXT(socket);
  int fd = next(family, type, protocol);
  bool may_be_tcp = (family == AF_INET || family == AF_INET6) &&
                    (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM;
  forget(fd, may_be_tcp ? MADE_HERE : UNKNOWN);
  return fd;
}

EXPORTED int connect(int fd, const struct sockaddr *to, socklen_t length) {
  NEXT(connect);
  int done = next(fd, to, length);
  if (done != 0) return done;
  if (to->sa_family == AF_UNSPEC) {  // ends a connection; the socket may have another
    forget(fd, UNKNOWN);
  } else {
    (void)connection_of(fd, SEEN_FROM_ITS_BEGINNING);
  }
  return done;
}

static int accepted(int fd) {
  forget(fd, UNKNOWN);
  (void)connection_of(fd, SEEN_FROM_ITS_BEGINNING);
  return fd;
}

EXPORTED int accept(int fd, struct sockaddr *from, socklen_t *length) {
  NEXT(accept);
  return accepted(next(fd, from, length));
}

EXPORTED int accept4(int fd, struct sockaddr *from, socklen_t *length, int flags) {
  NEXT(accept4);
  return accepted(next(fd, from, length, flags));
}

EXPORTED int close(int fd) {
  NEXT(close);
  forget(fd, UNKNOWN);
  return next(fd);
}

EXPORTED int dup2(int from, int to) {
  NEXT(dup2);
  int done = next(from, to);
  if (done >= 0 && from != to) forget(to, UNKNOWN);
  return done;
}

EXPORTED int dup3(int from, int to, int flags) {
  NEXT(dup3);
  int done = next(from, to, flags);
  if (done >= 0) forget(to, UNKNOWN);
  return done;
}

EXPORTED int close_range(unsigned first, unsigned last, int flags) {
  NEXT(close_range);
  if (own != NULL && (flags & CLOSE_RANGE_CLOEXEC) == 0 && atomic_load(&own->pid) == getpid()) {
    unsigned highest = (unsigned)atomic_load(&own->highest_fd);
    for (unsigned fd = first; fd <= last && fd <= highest; fd++) forget((int)fd, UNKNOWN);
  }
  if (next == NULL) return (int)raw_syscall(SYS_close_range, first, last, flags, 0, 0, 0);
  return next(first, last, flags);
}

// libuv, and torch's store with it, closes its sockets this way.
EXPORTED long syscall(long number, ...) {
  long of[6];
  va_list arguments;
  va_start(arguments, number);
  for (int i = 0; i < 6; i++) of[i] = va_arg(arguments, long);
  va_end(arguments);
  if (number == SYS_close) forget((int)of[0], UNKNOWN);
  __typeof__(&syscall) next = __atomic_load_n(&next_syscall, __ATOMIC_RELAXED);
  if (next != NULL) return next(number, of[0], of[1], of[2], of[3], of[4], of[5]);
  return raw_syscall(number, of[0], of[1], of[2], of[3], of[4], of[5]);
}
