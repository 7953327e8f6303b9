/* The gate: stands before every compiler of a build and asks Rekindle's governor whether there is memory for it now.

   It is started thousands of times, so it does next to nothing: says which object is to be made, waits for `go`, runs
   the compiler, tells how that ended and how much memory it took. Exit code and output are the compiler's. Without a
   governor, or when that has gone away, it only runs the compiler: a build never fails because of it.

   server.py is the other side. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE 120 /* seconds without a sign of life from the governor, which gives one every ten */

/* What follows `-o` or `/Fo`; nothing where neither is there. */
static const char *object_of(int count, char **words) {
    const char *found = "";
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "-o") == 0 && i + 1 < count) found = words[++i];
        else if ((words[i][0] == '/' || words[i][0] == '-') && strncmp(words[i] + 1, "Fo", 2) == 0 && words[i][3])
            found = words[i] + 3;
    }
    return found;
}

static int say(const char *format, ...);
static int hear(char *line, int size);

/* 1: go. 0: not at all, and `line` says why. No governor counts as go. */
static int admitted(char *line, int size) {
    while (hear(line, size)) {
        if (strcmp(line, "go") == 0) return 1;
        if (strncmp(line, "no ", 3) == 0) return 0;
    }
    return 1;
}

/* 1: once more. 0: that was it; a remark to be printed may be in `line`. */
static int once_more(char *line, int size) {
    while (hear(line, size)) {
        if (strcmp(line, "again") == 0) return 1;
        if (strncmp(line, "done", 4) == 0) {
            memmove(line, line + 4, strlen(line + 4) + 1);
            return 0;
        }
    }
    line[0] = 0;
    return 0;
}

#ifndef _WIN32

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int governor = -1;
static volatile sig_atomic_t child;

static int find_governor(void) {
    const char *where = getenv("REKINDLE_GATE");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!where || !*where || strlen(where) >= sizeof address.sun_path) return 0;
    strcpy(address.sun_path, where);
    governor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return governor >= 0 && connect(governor, (struct sockaddr *)&address, sizeof address) == 0;
}

static void lose_governor(void) {
    if (governor >= 0) close(governor);
    governor = -1;
}

static int say(const char *format, ...) {
    char line[8192];
    va_list values;
    va_start(values, format);
    int size = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    if (size >= (int)sizeof line) { size = sizeof line - 1; line[size - 1] = '\n'; }
    for (int sent = 0; governor >= 0 && sent < size;) {
        int now = send(governor, line + sent, size - sent, MSG_NOSIGNAL);
        if (now < 0 && errno == EINTR) continue;
        if (now <= 0) lose_governor();
        else sent += now;
    }
    return governor >= 0;
}

static int hear(char *line, int size) {
    int filled = 0;
    while (governor >= 0) {
        char letter;
        struct pollfd ready = {.fd = governor, .events = POLLIN};
        int found = poll(&ready, 1, PATIENCE * 1000);
        if (found < 0 && errno == EINTR) continue;
        if (found <= 0) break;
        int got = recv(governor, &letter, 1, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        if (letter == '\n') { line[filled] = 0; return 1; }
        if (filled < size - 1) line[filled++] = letter;
    }
    lose_governor();
    line[0] = 0;
    return 0;
}

static void pass_on(int number) {
    if (child > 0) kill(child, number);
    else _exit(128 + number);
}

/* Ninja reads both streams through one pipe. They are kept until the end, so that what a compile said that was killed
   and then went well is not in the log. */
static int kept_output(void) {
    struct stat out, err;
    if (fstat(1, &out) || fstat(2, &err) || out.st_ino != err.st_ino || out.st_dev != err.st_dev) return -1;
    if (!S_ISFIFO(out.st_mode)) return -1;
    return syscall(SYS_memfd_create, "output", 1u /* close on exec */);
}

static int run(char **words, int output, struct rusage *usage) {
    int status = 0;
    pid_t made = fork();
    if (made == 0) {
        /* Should memory run out all the same, a compiler is to go, not somebody's work. */
        int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
        if (score >= 0 && write(score, "300", 3) == 3) close(score);
        if (output >= 0) { dup2(output, 1); dup2(output, 2); }
        execvp(words[0], words);
        dprintf(2, "%s: %s\n", words[0], strerror(errno));
        _exit(errno == ENOENT ? 127 : 126);
    }
    if (made < 0) return -1;
    child = made;
    while (wait4(made, &status, 0, usage) < 0 && errno == EINTR) {}
    child = 0;
    return status;
}

/* The driver outlives the compiler that was killed, and says so in its own words. */
static int tells_of_a_kill(int output) {
    static char text[65536];
    off_t size = output < 0 ? 0 : lseek(output, 0, SEEK_END);
    off_t from = size > (off_t)sizeof text - 1 ? size - (off_t)sizeof text + 1 : 0;
    ssize_t got = size > 0 ? pread(output, text, sizeof text - 1, from) : 0;
    if (got <= 0) return 0;
    for (ssize_t i = 0; i < got; i++) if (!text[i]) text[i] = ' ';
    text[got] = 0;
    return strstr(text, "signal 9") || strstr(text, "Killed signal") || strstr(text, "command: Killed");
}

static void show(int output) {
    char part[65536];
    off_t at = 0;
    ssize_t got;
    while (output >= 0 && (got = pread(output, part, sizeof part, at)) > 0) {
        at += got;
        for (ssize_t done = 0; done < got;) {
            ssize_t now = write(1, part + done, got - done);
            if (now < 0 && errno == EINTR) continue;
            if (now <= 0) return;
            done += now;
        }
    }
}

int main(int count, char **words) {
    char line[4096];
    int status, output;
    struct rusage usage;
    if (count < 2) return fputs("gate: names no compiler\n", stderr), 2;
    if (!find_governor()) {
        lose_governor();
        execvp(words[1], words + 1);
        return fprintf(stderr, "%s: %s\n", words[1], strerror(errno)), errno == ENOENT ? 127 : 126;
    }
    struct sigaction act = {.sa_handler = pass_on};
    for (const int *one = (const int[]){SIGINT, SIGTERM, SIGHUP, 0}; *one; one++) sigaction(*one, &act, NULL);
    output = kept_output();
    say("start %d %s\n", (int)getpid(), object_of(count, words));
    do {
        if (!admitted(line, sizeof line)) return fprintf(stderr, "%s\n", line + 3), 1;
        if (output >= 0 && ftruncate(output, 0) == 0) lseek(output, 0, SEEK_SET);
        status = run(words + 1, output, &usage);
        if (status < 0) return fprintf(stderr, "%s: %s\n", words[1], strerror(errno)), 126;
        line[0] = 0;
        int killed = status && ((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) || tells_of_a_kill(output));
        say("end %d %d %ld\n", WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status), killed, usage.ru_maxrss);
    } while (status && once_more(line, sizeof line));
    show(output);
    if (line[0]) fprintf(stderr, "%s\n", line + 1);
    if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
}

#else /* Windows: loopback and a secret instead of a socket in the file system, a Job Object for the memory. */

#include <stdarg.h>
#include <windows.h>

/* By hand, because not every compiler brings the headers, and loaded late: without a governor it is not needed. */
typedef UINT_PTR Socket;
typedef struct { short family; unsigned short port; unsigned long address; char zero[8]; } Address;
typedef int (WINAPI *Startup)(WORD, void *);
typedef Socket (WINAPI *Open)(int, int, int);
typedef int (WINAPI *Connect)(Socket, const Address *, int);
typedef int (WINAPI *Send)(Socket, const char *, int, int);
typedef int (WINAPI *Receive)(Socket, char *, int, int);
typedef int (WINAPI *Option)(Socket, int, int, const char *, int);
typedef int (WINAPI *Close)(Socket);
static Send ws_send;
static Receive ws_recv;
static Close ws_close;

static Socket governor = ~(Socket)0;

static void lose_governor(void) {
    if (governor != ~(Socket)0) ws_close(governor);
    governor = ~(Socket)0;
}

static int say(const char *format, ...) {
    char line[8192];
    va_list values;
    va_start(values, format);
    int size = _vsnprintf(line, sizeof line - 1, format, values);
    va_end(values);
    if (size < 0) { size = sizeof line - 1; line[size - 1] = '\n'; }
    for (int sent = 0; governor != ~(Socket)0 && sent < size;) {
        int now = ws_send(governor, line + sent, size - sent, 0);
        if (now <= 0) lose_governor();
        else sent += now;
    }
    return governor != ~(Socket)0;
}

static int hear(char *line, int size) {
    int filled = 0;
    char letter;
    while (governor != ~(Socket)0 && ws_recv(governor, &letter, 1, 0) == 1) {
        if (letter == '\n') { line[filled] = 0; return 1; }
        if (filled < size - 1) line[filled++] = letter;
    }
    if (governor != ~(Socket)0) lose_governor();
    line[0] = 0;
    return 0;
}

static int find_governor(void) {
    char where[128], *secret;
    unsigned char room[1024];
    DWORD size = GetEnvironmentVariableA("REKINDLE_GATE", where, sizeof where);
    if (!size || size >= sizeof where || !(secret = strchr(where, ' '))) return 0;
    HMODULE sockets = LoadLibraryA("ws2_32.dll");
    if (!sockets) return 0;
    Startup ws_startup = (Startup)(void *)GetProcAddress(sockets, "WSAStartup");
    Open ws_socket = (Open)(void *)GetProcAddress(sockets, "socket");
    Connect ws_connect = (Connect)(void *)GetProcAddress(sockets, "connect");
    Option ws_setsockopt = (Option)(void *)GetProcAddress(sockets, "setsockopt");
    ws_send = (Send)(void *)GetProcAddress(sockets, "send");
    ws_recv = (Receive)(void *)GetProcAddress(sockets, "recv");
    ws_close = (Close)(void *)GetProcAddress(sockets, "closesocket");
    if (!ws_startup || !ws_socket || !ws_connect || !ws_setsockopt || !ws_send || !ws_recv || !ws_close) return 0;
    if (ws_startup(0x0202, room)) return 0;
    governor = ws_socket(2 /* AF_INET */, 1 /* SOCK_STREAM */, 6 /* TCP */);
    if (governor == ~(Socket)0) return 0;
    SetHandleInformation((HANDLE)governor, HANDLE_FLAG_INHERIT, 0);
    unsigned short port = (unsigned short)atoi(where);
    DWORD patience = PATIENCE * 1000;
    int now = 1;
    Address address = {2, (unsigned short)(port << 8 | port >> 8), 0x0100007f, {0}};
    if (ws_connect(governor, &address, sizeof address)) { lose_governor(); return 0; }
    ws_setsockopt(governor, 0xffff, 0x1006 /* SO_RCVTIMEO */, (char *)&patience, sizeof patience);
    ws_setsockopt(governor, 6, 1 /* TCP_NODELAY */, (char *)&now, sizeof now);
    return say("%s\n", secret + 1);
}

/* The command line behind our own name, to the letter: nothing is quoted anew. */
static wchar_t *rest_of_line(void) {
    wchar_t *at = GetCommandLineW();
    int quoted = 0;
    for (; *at && (quoted || (*at != L' ' && *at != L'\t')); at++)
        if (*at == L'"') quoted = !quoted;
    while (*at == L' ' || *at == L'\t') at++;
    return at;
}

typedef struct {
    LONGLONG times[2];
    DWORD flags;
    SIZE_T working_set[2];
    DWORD active;
    ULONG_PTR affinity;
    DWORD classes[2];
    ULONGLONG io[6];
    SIZE_T limits[2], peak_process, peak_job;
} Usage;
typedef struct { DWORD size, faults; SIZE_T values[8]; } Counters;
typedef HANDLE (WINAPI *MakeJob)(void *, void *);
typedef BOOL (WINAPI *PutIn)(HANDLE, HANDLE);
typedef BOOL (WINAPI *AskJob)(HANDLE, int, void *, DWORD, DWORD *);
typedef BOOL (WINAPI *AskProcess)(HANDLE, Counters *, DWORD);

static void *kernel(const char *name) { return (void *)GetProcAddress(GetModuleHandleA("kernel32.dll"), name); }

/* A job counts all that the compiler starts. It ends nothing: a compiler cache's server has to outlive us. */
static HANDLE job_of(HANDLE process) {
    MakeJob make = (MakeJob)kernel("CreateJobObjectW");
    PutIn put = (PutIn)kernel("AssignProcessToJobObject");
    HANDLE job = make ? make(NULL, NULL) : NULL;
    if (job && put) put(job, process);
    return job;
}

/* The job's peak; where there is none, the compiler's own must do. */
static SIZE_T peak_of(HANDLE job, HANDLE process) {
    Usage usage;
    Counters counters;
    memset(&usage, 0, sizeof usage);
    memset(&counters, 0, sizeof counters);
    AskJob ask = (AskJob)kernel("QueryInformationJobObject");
    if (job && ask && ask(job, 9, &usage, sizeof usage, NULL) && usage.peak_job) return usage.peak_job;
    AskProcess own = (AskProcess)kernel("K32GetProcessMemoryInfo");
    return own && own(process, &counters, sizeof counters) ? counters.values[7] : 0;
}

static DWORD run(wchar_t *line, SIZE_T *peak) {
    STARTUPINFOW start;
    PROCESS_INFORMATION made;
    DWORD code = 1;
    memset(&start, 0, sizeof start);
    start.cb = sizeof start;
    start.dwFlags = STARTF_USESTDHANDLES;
    start.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
    start.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
    start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    wchar_t *copy = _wcsdup(line); /* CreateProcessW writes into it */
    if (!copy || !CreateProcessW(NULL, copy, NULL, NULL, TRUE, CREATE_SUSPENDED, NULL, NULL, &start, &made)) {
        fprintf(stderr, "gate: the compiler could not be started (error %lu)\n", GetLastError());
        return 126;
    }
    HANDLE job = job_of(made.hProcess);
    ResumeThread(made.hThread);
    WaitForSingleObject(made.hProcess, INFINITE);
    GetExitCodeProcess(made.hProcess, &code);
    *peak = peak_of(job, made.hProcess);
    CloseHandle(made.hThread);
    CloseHandle(made.hProcess);
    if (job) CloseHandle(job);
    free(copy);
    return code;
}

static BOOL WINAPI wait_for_it(DWORD event) { return event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT; }

int main(int count, char **words) {
    char line[4096];
    SIZE_T peak = 0;
    DWORD code;
    if (count < 2) return fputs("gate: names no compiler\n", stderr), 2;
    /* The compiler hears Ctrl-C itself and tidies up; we only wait for it. */
    SetConsoleCtrlHandler(wait_for_it, TRUE);
    if (find_governor()) say("start %lu %s\n", GetCurrentProcessId(), object_of(count, words));
    do {
        if (!admitted(line, sizeof line)) return fprintf(stderr, "%s\n", line + 3), 1;
        code = run(rest_of_line(), &peak);
        line[0] = 0;
        say("end %ld 0 %lu\n", (long)code, (unsigned long)(peak / 1024));
    } while (code && once_more(line, sizeof line));
    if (line[0]) fprintf(stderr, "%s\n", line + 1);
    return (int)code;
}

#endif
