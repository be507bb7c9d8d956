#!/usr/bin/env python3
"""Every built function is called with a null pointer in the place of each of its pointers, and with text that is not UTF-8.

Generated from abi/functions.tsv and abi/removed.tsv: a C program that calls each function once with arguments that are in order,
which must succeed, and then once for each pointer with that one null: the call must give an error class, or succeed where the
standard gives null a meaning. A crash names the call, and the next process goes on with the next one.
timeout: 240
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(os.environ["ROOT"])

# These end the process, or are over when the calls are made; finalize.c and the launcher's tests call them.
LEFT_OUT = {"MPI_Abort", "MPI_Finalize", "MPI_Pcontrol"}

# Called with arguments in order they give an error all the same, for the reason given; null pointers are tried nonetheless.
FAILS_ALONE = {
    "MPI_Init": "is initialized already", "MPI_Init_thread": "is initialized already",
    "MPI_Comm_remote_size": "one process has no intercommunicator", "MPI_Comm_remote_group": "one process has no intercommunicator",
    "MPI_Intercomm_create": "one process has no intercommunicator", "MPI_Intercomm_merge": "one process has no intercommunicator",
    "MPI_Intercomm_create_from_groups": "one process has no intercommunicator",
    "MPI_Compare_and_swap": "one process has no rank 1", "MPI_Fetch_and_op": "one process has no rank 1",
    "MPI_Win_attach": "the window is not dynamic", "MPI_Win_detach": "the window is not dynamic", "MPI_Win_test": "nothing was posted",
    "MPI_Parrived": "the request sends",
    "MPI_Close_port": "no port is open", "MPI_Comm_accept": "no port is open", "MPI_Comm_connect": "no port is open",
    "MPI_Comm_join": "no socket", "MPI_Lookup_name": "nothing is published under it",
    "MPI_Comm_spawn": "there is no such program", "MPI_Comm_spawn_multiple": "there is no such program",
    "MPI_Pready_list": "the partition is ready already",
    "MPI_T_event_read": "no event", "MPI_T_event_copy": "no event", "MPI_T_event_get_timestamp": "no event",
    "MPI_T_event_get_source": "no event", "MPI_T_cvar_write": "cannot be written now", "MPI_T_pvar_write": "cannot be written",
    "MPI_T_pvar_readreset": "is read only", "MPI_Abi_set_fortran_booleans": "the second time",
    }

# Where null has a meaning: names of functions and of parameters.
MAY_SUCCEED = [
    (r".*", r"status|array_of_statuses"),  # MPI_STATUS_IGNORE
    (r".*", r"extra_state|.*copy.*_fn|.*delete.*_fn|copy_fn|delete_fn"),  # the program's own; MPI_*_NULL_*_FN
    (r"MPI_T_.*", r".*"),  # the caller does not ask for it (15.3.2)
    (r"MPI_Get_address|MPI_Address", r"location"),  # MPI_BOTTOM
    (r"MPI_Free_mem", r"base"),
    (r"MPI_Info_create_env", r"argv"),  # no arguments
    (r"MPI_Grequest_start", r".*_fn"),  # never called
    (r"MPI_(Un)?[Pp]ack(_external)?(_c)?", r"inbuf|outbuf"),  # checked below by the datatype: MPI_BOTTOM
    (r"MPI_.*_attr|MPI_Attr_put", r"attribute_val"),  # any value may be an attribute
    (r"MPI_Type_get_contents(_c)?", r"array_of_(addresses|large_counts)"),  # there are none
    (r"MPI_Dist_graph_neighbors", r"sourceweights|destweights"),  # the graph has none
    (r"MPI_Abi_get_fortran_booleans", r"logical_(true|false)"),  # not set yet
    (r"MPI_Info_get", r"value"), (r"MPI_Info_get_valuelen", r"valuelen"),
    (r"MPI_Register_datarep(_c)?", r"(read|write)_conversion_fn"),  # MPI_CONVERSION_FN_NULL
]

# What must be so before each call of these.
BEFORE = [
    (r"MPI_File_delete", 'MPI_File_close(&file); MPI_File_open(MPI_COMM_SELF, "key", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);'),
    *((rf"MPI_File_{call}_end", f"MPI_File_{call}_begin(open_file, {'1, ' if 'at' in call else ''}buffer, 1, MPI_INT);")
      for call in ("read_all", "write_all", "read_at_all", "write_at_all", "read_ordered", "write_ordered")),
    (r"MPI_Buffer_attach.*", "MPI_Buffer_detach(&pointer, &flag);"),
    (r"MPI_Buffer_detach.*", "MPI_Buffer_attach(buffer, 1000);"),
    (r"MPI_Comm_attach_.*", "MPI_Comm_detach_buffer(MPI_COMM_SELF, &pointer, &flag);"),
    (r"MPI_Comm_detach_.*", "MPI_Comm_attach_buffer(MPI_COMM_SELF, buffer, 1000);"),
    (r"MPI_Session_attach_.*", "MPI_Session_detach_buffer(session, &pointer, &flag);"),
    (r"MPI_Session_detach_.*", "MPI_Session_attach_buffer(session, buffer, 1000);"),
    (r"MPI_Cancel|MPI_Wait.*|MPI_Test.*", "MPI_Irecv(other, 1, MPI_INT, MPI_PROC_NULL, 77, MPI_COMM_SELF, &request); requests[0] = request;"),
    (r"MPI_Info_delete", 'MPI_Info_set(info, "key", "value");'),
    (r"MPI_(Comm|Attr)_?(get|delete)(_attr)?", "MPI_Comm_set_attr(MPI_COMM_SELF, comm_keyval, buffer);"),
    (r"MPI_Type_get_attr", "MPI_Type_set_attr(vector, type_keyval, buffer);"),
    (r"MPI_Comm_(free|disconnect)", "MPI_Comm_dup(MPI_COMM_SELF, &a_comm);"),
    (r"MPI_Type_free", "MPI_Type_dup(vector, &out_type);"),
    (r"MPI_Start|MPI_Startall", "MPI_Wait(&inactive, &status);"),
    (r"MPI_T_event_.*", "MPI_T_event_handle_alloc(0, NULL, MPI_INFO_NULL, &registration);"),
    (r"MPI_T_event_callback_.*", "MPI_T_event_register_callback(registration, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, NULL, on_event);"),
]

HEAD = r"""
#include <mpi.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *volatile current = "";
static void crashed(int signal)
{
    const char *why = signal == SIGALRM ? " HANGS\n" : " CRASHES\n";
    write(1, current, strlen(current));
    write(1, why, strlen(why));
    _exit(3);
}
static void user_op(void *a, void *b, int *n, MPI_Datatype *d) { (void) a, (void) b, (void) n, (void) d; }
static void user_op_c(void *a, void *b, MPI_Count *n, MPI_Datatype *d) { (void) a, (void) b, (void) n, (void) d; }
static void comm_handler(MPI_Comm *o, int *code, ...) { (void) o, (void) code; }
static void win_handler(MPI_Win *o, int *code, ...) { (void) o, (void) code; }
static void file_handler(MPI_File *o, int *code, ...) { (void) o, (void) code; }
static void session_handler(MPI_Session *o, int *code, ...) { (void) o, (void) code; }
static int query(void *e, MPI_Status *s) { (void) e, (void) s; return 0; }
static int let_go(void *e) { (void) e; return 0; }
static int cancel(void *e, int c) { (void) e, (void) c; return 0; }
static void on_event(MPI_T_event_instance i, MPI_T_event_registration r, MPI_T_cb_safety s, void *u) { (void) i, (void) r, (void) s, (void) u; }
static void on_free(MPI_T_event_registration r, MPI_T_cb_safety s, void *u) { (void) r, (void) s, (void) u; }
static void on_drop(MPI_Count n, MPI_T_event_registration r, int i, MPI_T_cb_safety s, void *u) { (void) n, (void) r, (void) i, (void) s, (void) u; }

static int extent_of(MPI_Datatype d, MPI_Aint *extent, void *e) { (void) d, (void) e; *extent = 4; return 0; }

static MPI_Comm cart, graph, dist;
static MPI_Group group, out_group;
static MPI_Info info;
static MPI_Session session;
static MPI_Errhandler handler, session_errhandler;
static MPI_Request request, inactive, partitioned, requests[2];
static MPI_Message message;
static MPI_Status status, statuses[4];
static MPI_Datatype vector, types[4], out_type;
static MPI_Comm a_comm;
static MPI_Op op;
static MPI_Win win, own_win;
static char window_memory[4096];
static MPI_File file, open_file;
static MPI_T_enum enumeration, out_enumeration;
static MPI_T_cvar_handle cvar;
static MPI_T_pvar_session pvar_session;
static MPI_T_pvar_handle pvar;
static MPI_T_event_registration registration;
static MPI_T_event_instance instance;
static int comm_keyval, type_keyval, win_keyval, errorclass, cvar_name, ints[64], one = 1, flag, ranges[1][3];
static MPI_Count counts[64], large;
static MPI_Aint aints[64];
static MPI_Offset offset;
static char text[8192], more_text[8192], *pointer;
static long long buffer[1024], other[1024];
static double doubles[64];
static MPI_T_source_order order;
static char *arguments[] = {"program", NULL}, **argument_list = arguments;

/* Of the split collectives one at most has begun. */
static void end_split(void)
{
    MPI_File_read_all_end(open_file, buffer, &status), MPI_File_write_all_end(open_file, buffer, &status);
    MPI_File_read_at_all_end(open_file, buffer, &status), MPI_File_write_at_all_end(open_file, buffer, &status);
    MPI_File_read_ordered_end(open_file, buffer, &status), MPI_File_write_ordered_end(open_file, buffer, &status);
}

/* Everything that a call may use up is made anew. */
static void renew(void)
{
    int k;
    if (handler == MPI_ERRHANDLER_NULL) MPI_Comm_create_errhandler(comm_handler, &handler);
    session_errhandler = MPI_ERRORS_RETURN;
    if (group == MPI_GROUP_NULL) MPI_Comm_group(MPI_COMM_SELF, &group);
    if (info == MPI_INFO_NULL) MPI_Info_create(&info), MPI_Info_set(info, "key", "value");
    if (session == MPI_SESSION_NULL) MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    if (inactive == MPI_REQUEST_NULL) MPI_Send_init(buffer, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF, &inactive);
    if (partitioned == MPI_REQUEST_NULL)
        MPI_Psend_init(buffer, 1, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF, MPI_INFO_NULL, &partitioned), MPI_Start(&partitioned);
    if (vector == MPI_DATATYPE_NULL) MPI_Type_vector(2, 1, 2, MPI_INT, &vector), MPI_Type_commit(&vector);
    if (op == MPI_OP_NULL) MPI_Op_create(user_op, 1, &op);
    if (comm_keyval == MPI_KEYVAL_INVALID) MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &comm_keyval, NULL);
    if (type_keyval == MPI_KEYVAL_INVALID) MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &type_keyval, NULL);
    if (win_keyval == MPI_KEYVAL_INVALID) MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, &win_keyval, NULL);
    if (!win || win == MPI_WIN_NULL || win != own_win) {
        MPI_Win_create(window_memory, sizeof window_memory, 1, MPI_INFO_NULL, MPI_COMM_SELF, &own_win);
        win = own_win;
        MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
        MPI_Win_fence(0, win);
    }
    a_comm = MPI_COMM_NULL;
    request = requests[0] = requests[1] = MPI_REQUEST_NULL;
    message = MPI_MESSAGE_NO_PROC;
    memset(&status, 0, sizeof status);
    if (file == MPI_FILE_NULL) MPI_File_open(MPI_COMM_SELF, "file", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    if (open_file == MPI_FILE_NULL) MPI_File_open(MPI_COMM_SELF, "open", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &open_file);
    end_split();
    for (k = 0; k < 64; k++) ints[k] = 1, counts[k] = 1, aints[k] = 0;
    for (k = 0; k < 4; k++) types[k] = MPI_INT;
    ranges[0][0] = ranges[0][1] = 0, ranges[0][2] = 1;
    one = 1;
    strcpy(text, "key");
    if (!pvar_session) MPI_T_pvar_session_create(&pvar_session);
    if (!cvar) MPI_T_cvar_handle_alloc(0, NULL, &cvar, &flag);
    if (!pvar) MPI_T_pvar_handle_alloc(pvar_session, 0, &cart, &pvar, &flag);
    if (!registration) MPI_T_event_handle_alloc(0, NULL, MPI_INFO_NULL, &registration);
}

/* Another name each time. */
static char *datarep_text(void) { static int n; snprintf(text, sizeof text, "representation %d", n++); return text; }
static int *dist_ints(void) { ints[20] = MPI_DISTRIBUTE_BLOCK; return ints + 20; }
static int *darg_ints(void) { ints[24] = MPI_DISTRIBUTE_DFLT_DARG; return ints + 24; }
static char *cvar_text(void) { int n = sizeof text; MPI_T_cvar_get_info(0, text, &n, NULL, NULL, NULL, NULL, NULL, NULL, NULL); return text; }
static char *category_text(void) { int n = sizeof text; MPI_T_category_get_info(0, text, &n, NULL, NULL, NULL, NULL, NULL); return text; }
static char *event_text(void)
{
    int n = sizeof text;
    MPI_T_event_get_info(0, text, &n, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    return text;
}
static int pvar_class(void) { int c; MPI_T_pvar_get_info(0, NULL, NULL, NULL, &c, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL); return c; }
static char *pvar_text(void)
{
    int n = sizeof text;
    MPI_T_pvar_get_info(0, text, &n, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    return text;
}

enum { FINE, ANY, NULL_GIVEN };
static int failures;
static void judge(int expected, int code)
{
    int class = -1;
    if (MPI_Error_class(code, &class) || class < 0) {
        printf("%s gives %d, which is no error code\n", current, code);
        failures++;
    } else if (class == MPI_ERR_INTERN) {
        printf("%s is an internal error\n", current);
        failures++;
    } else if (expected == FINE && class != MPI_SUCCESS) {
        char why[MPI_MAX_ERROR_STRING];
        int length;
        MPI_Error_string(code, why, &length);
        printf("%s fails: %s\n", current, why);
        failures++;
    } else if (expected == NULL_GIVEN && class == MPI_SUCCESS) {
        printf("%s succeeds\n", current);
        failures++;
    }
}

static void begin(void)
{
    int dims[1] = {1}, periods[1] = {0}, index[1] = {1}, edge[1] = {0}, self = 0, k, cvars;
    MPI_Init(NULL, NULL);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &one);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Cart_create(MPI_COMM_SELF, 1, dims, periods, 0, &cart);
    MPI_Graph_create(MPI_COMM_SELF, 1, index, edge, 0, &graph);
    MPI_Dist_graph_create_adjacent(MPI_COMM_SELF, 1, &self, MPI_UNWEIGHTED, 1, &self, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &dist);
    MPI_Add_error_class(&errorclass);
    MPI_T_cvar_get_num(&cvars);
    for (k = 0; k < cvars && enumeration == MPI_T_ENUM_NULL; k++)
        MPI_T_cvar_get_info(k, NULL, NULL, NULL, NULL, &enumeration, NULL, NULL, NULL, NULL);
    group = MPI_GROUP_NULL, info = MPI_INFO_NULL, session = MPI_SESSION_NULL, handler = MPI_ERRHANDLER_NULL, op = MPI_OP_NULL;
    file = open_file = MPI_FILE_NULL;
    inactive = partitioned = MPI_REQUEST_NULL, vector = MPI_DATATYPE_NULL;
    comm_keyval = type_keyval = win_keyval = MPI_KEYVAL_INVALID;
}
"""


def main():
    functions = [f for f in table("functions.tsv", 2) + table("removed.tsv", 2) if built(f[0])]
    calls, index = [], 0
    for name, returns, parameters in functions:
        if name in LEFT_OUT or returns != "int" or not any(is_pointer(p) for p in parameters):
            continue
        arguments = [argument(name, p, False) for p in parameters]
        calls.append(call(name, "in order", "ANY" if name in FAILS_ALONE else "FINE", arguments))
        for at, parameter in enumerate(parameters):
            if not is_pointer(parameter):
                continue
            what = parameter_name(parameter)
            allowed = any(re.fullmatch(f, name) and re.fullmatch(p, what) for f, p in MAY_SUCCEED)
            given = [argument(name, p, what in ("buf", "sendbuf", "inbuf", "buffer")) for p in parameters]
            given[at] = "NULL"
            calls.append(call(name, f"with {what} = NULL", "ANY" if allowed else "NULL_GIVEN", given))
            if re.search(r"const char ?\*", parameter):
                given[at] = '"\\xff\\xfe\\xc3"'
                calls.append(call(name, f"with {what} that is not UTF-8", "ANY", given))
                given[at] = "more_text"
                calls.append(call(name, f"with a long {what}", "ANY", given))
    lines = [HEAD, "static void run(int from)\n{\n    switch (from) {"]
    for index, (label, body) in enumerate(calls):
        lines.append(f"    case {index}:\n        current = \"{index} {label}\";\n        renew();\n        alarm(20);\n        {body}\n        /* fall through */")
    lines.append("    default: break;\n    }\n}\nint main(int argc, char **argv)\n{")
    lines.append("    int k;\n    (void) argc;\n    setvbuf(stdout, NULL, _IONBF, 0);")
    lines.append("    for (k = 0; k < 8190; k += 2) memcpy(more_text + k, \"\\xc3\\xa9\", 2);")
    lines.append("    signal(SIGSEGV, crashed), signal(SIGBUS, crashed), signal(SIGABRT, crashed), signal(SIGALRM, crashed);")
    lines.append("    begin();\n    run(atoi(argv[1]));\n    return failures ? 1 : 0;\n}")
    Path("calls.c").write_text("\n".join(lines))
    subprocess.run(["mpicc", "-O0", "-w", "calls.c", "-o", "calls"], check=True)
    start, found = 0, []
    while start < len(calls):
        done = subprocess.run(["./calls", str(start)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        lines = done.stdout.splitlines()
        found += [re.sub(r"^\d+ ", "", line) for line in lines]
        if done.returncode in (0, 1):
            break
        last = [int(m[1]) for line in lines if (m := re.match(r"(\d+) .*(CRASHES|HANGS)$", line))]
        if not last:
            found.append(f"the process ended with status {done.returncode} after call {start}")
            break
        start = last[-1] + 1
    print(*found, sep="\n")
    print(f"{len(calls)} calls of {len({label.split()[0] for label, _ in calls})} functions, {len(found)} findings")
    return 1 if found else 0


def table(file, skip):
    rows = [line.split("\t") for line in (ROOT / "abi" / file).read_text().splitlines()[1:]] if (ROOT / "abi" / file).exists() else []
    return [(name, returns, [p for p in parameters.split(", ") if p not in ("void", "...")]) for name, _, returns, parameters in rows]


def built(name):
    if not hasattr(built, "names"):
        text = "".join(p.read_text() for p in (ROOT / "crates/abi/src/entry").glob("*.rs"))
        built.names = set(re.findall(r"pub unsafe fn (MPI_\w+)\(", text))
    return name in built.names


def call(name, label, expected, arguments):
    before = "".join(text for pattern, text in BEFORE if re.fullmatch(pattern, name))
    return f"{name} {label}", f"{before} judge({expected}, {name}({', '.join(arguments)}));"


def parameter_name(parameter):
    return re.search(r"(\w+)(\[.*)?$", parameter)[1]


def is_pointer(parameter):
    return "*" in parameter or "[" in parameter or parameter.split()[0].endswith(("_function", "_function_c"))


NEIGHBOR = "cart"


def argument(function, parameter, real):
    """A value in order. With `real`, a peer that exists, so that buffers are looked at."""
    what, kind = parameter_name(parameter), parameter.rsplit(None, 1)[0].replace("const ", "").strip()
    pointer = is_pointer(parameter)
    base = kind.replace("*", "").strip()
    if base.endswith(("_function", "_function_c")):
        return callback(function, base)
    if not pointer:
        return value(function, base, what, real)
    special = {
        ("MPI_Request_get_status_all", "array_of_requests"): "requests",
        ("MPI_Info_get_string", "buflen"): "ints", ("MPI_Session_get_nth_pset", "pset_len"): "ints",
        ("MPI_Comm_free", "comm"): "&a_comm", ("MPI_Comm_disconnect", "comm"): "&a_comm",
        ("MPI_Keyval_free", "keyval"): "&comm_keyval",
        ("MPI_Type_free", "datatype"): "&out_type",
        ("MPI_Start", "request"): "&inactive", ("MPI_Startall", "array_of_requests"): "&inactive",
        ("MPI_Cancel", "request"): "&request", ("MPI_Free_mem", "base"): "malloc(8)",
        ("MPI_T_category_get_index", "name"): "category_text()", ("MPI_T_event_get_index", "name"): "event_text()",
        ("MPI_Request_free", "request"): "&inactive",
        ("MPI_T_pvar_handle_alloc", "obj_handle"): "&cart",
        ("MPI_Session_get_pset_info", "pset_name"): '"mpi://SELF"', ("MPI_Group_from_session_pset", "pset_name"): '"mpi://SELF"',
        ("MPI_T_cvar_get_index", "name"): "cvar_text()", ("MPI_T_pvar_get_index", "name"): "pvar_text()",
    }
    if (function, what) in special:
        return special[function, what]
    if base == "void":
        if what == "baseptr" or what == "buffer_addr":
            return "&pointer"
        if "recv" in what or what in ("outbuf", "inoutbuf"):
            return "other"
        return "buffer"
    if base == "char":
        if "**" in parameter and "[" in parameter:
            return "&argument_list"
        if what == "array_of_commands":
            return "arguments"
        if "**" in parameter.replace(" ", "") and "***" not in parameter.replace(" ", "") or "*argv[" in parameter:
            return "arguments"
        if "***" in parameter.replace(" ", ""):
            return "&argument_list"
        if what == "datarep" and function.startswith("MPI_Register"):
            return "datarep_text()"
        if what == "datarep" and "const" in parameter:
            return '"external32"'
        return '"key"' if "const" in parameter else "text"
    if "ranges" in what:
        return "ranges"
    arrays = {"int": "ints", "MPI_Count": "counts", "MPI_Aint": "aints", "MPI_Offset": "&offset", "double": "doubles"}
    if base == "int":
        if what.endswith("keyval"):
            return "&" + {"keyval": "comm_keyval"}.get(what, what)
        if what in ("ranks", "ranks1", "edges", "sources", "destinations", "coords", "displs", "sdispls", "rdispls", "position",
                    "array_of_starts", "array_of_partitions", "array_of_displacements"):
            return "(memset(ints + 32, 0, 64), ints + 32)"
        if what in ("array_of_distribs", "array_of_dargs"):
            return "dist_ints()" if what == "array_of_distribs" else "darg_ints()"
        return "ints + 8" if what in ("dims", "periods", "degrees", "indx", "index") else "ints"
    if base == "MPI_Count" and what in ("position", "array_of_starts", "array_of_displacements"):
        return "(memset(counts + 32, 0, 64), counts + 32)"
    if base in arrays:
        return arrays[base]
    handles = {
        "MPI_Request": "requests" if "array" in what else "&request", "MPI_Status": "statuses" if "array" in what else "&status",
        "MPI_Datatype": "types" if what.endswith("types") else "&vector" if function == "MPI_Type_commit" else "&out_type",
        "MPI_Comm": "&a_comm", "MPI_Group": "&out_group" if what == "newgroup" else "&group", "MPI_Info": "&info", "MPI_Errhandler": "&handler", "MPI_Op": "&op",
        "MPI_Message": "&message", "MPI_Session": "&session", "MPI_Win": "&win", "MPI_File": "&file", "MPI_T_enum": "&out_enumeration",
        "MPI_T_cvar_handle": "&cvar", "MPI_T_pvar_handle": "&pvar", "MPI_T_pvar_session": "&pvar_session",
        "MPI_T_event_registration": "&registration", "MPI_T_source_order": "&order",
    }
    return handles[base]


def callback(function, base):
    named = {
        "MPI_User_function": "user_op", "MPI_User_function_c": "user_op_c", "MPI_Comm_errhandler_function": "comm_handler",
        "MPI_Win_errhandler_function": "win_handler", "MPI_File_errhandler_function": "file_handler",
        "MPI_Session_errhandler_function": "session_handler", "MPI_Grequest_query_function": "query",
        "MPI_Grequest_free_function": "let_go", "MPI_Grequest_cancel_function": "cancel", "MPI_T_event_cb_function": "on_event",
        "MPI_T_event_free_cb_function": "on_free", "MPI_Datarep_extent_function": "extent_of", "MPI_T_event_dropped_cb_function": "on_drop",
    }
    return named.get(base, "NULL")


def value(function, base, what, real):
    if base == "MPI_Comm":
        if function.startswith("MPI_Graph") and function not in ("MPI_Graph_create", "MPI_Graph_map"):
            return "graph"
        if function.startswith("MPI_Dist_graph_neighbors"):
            return "dist"
        if function.startswith("MPI_Cart") and function not in ("MPI_Cart_create", "MPI_Cart_map") or "eighbor" in function:
            return "dist" if "eighbor" in function else "cart"
        return "MPI_COMM_SELF"
    if base == "MPI_Datatype":
        return "vector" if function in ("MPI_Type_get_contents", "MPI_Type_get_contents_c") else \
            {"value_type": "MPI_FLOAT"}.get(what, "vector" if re.search("attr|set_name", function) else "MPI_INT")
    handles = {"MPI_Group": "group", "MPI_Info": "info", "MPI_Errhandler": "session_errhandler", "MPI_Op": "MPI_SUM", "MPI_Session": "session",
               "MPI_File": "open_file", "MPI_Win": "win", "MPI_Message": "message", "MPI_T_enum": "enumeration",
               "MPI_T_cvar_handle": "cvar", "MPI_T_pvar_handle": "pvar", "MPI_T_pvar_session": "pvar_session",
               "MPI_T_event_registration": "registration", "MPI_T_event_instance": "instance", "MPI_T_cb_safety": "MPI_T_CB_REQUIRE_NONE"}
    if base == "MPI_Request":
        return "partitioned" if function.startswith("MPI_P") else "request"
    if base in handles:
        return handles[base]
    if base == "double":
        return "1.0"
    numbers = {
        "dest": "MPI_PROC_NULL", "source": "MPI_PROC_NULL", "tag": "0", "sendtag": "0", "recvtag": "0", "root": "0", "rank": "0", "color": "0",
        "key": "0", "split_type": "MPI_COMM_TYPE_SHARED", "order": "MPI_ORDER_C", "typeclass": "MPIX_TYPECLASS_LOGICAL",
        "comm_keyval": "comm_keyval", "keyval": "comm_keyval", "type_keyval": "type_keyval", "win_keyval": "win_keyval", "errorclass": "errorclass",
        "errorcode": "errorclass", "logical_size": "4", "direction": "0", "disp": "0", "p": "6", "r": "30", "lb": "0", "indx": "0", "n": "1",
        "local_leader": "0", "remote_leader": "0", "size": "4", "required": "MPI_THREAD_SINGLE", "outsize": "64", "insize": "64",
        "partition": "0", "partition_low": "0", "partition_high": "0", "valuelen": "100", "var_class": "pvar_class()",
        "cb_safety": "MPI_T_CB_REQUIRE_NONE", "nnodes": "1", "maxdims": "1", "reorder": "0", "high": "0", "stride": "8",
        "max_integers": "3", "max_addresses": "3", "max_datatypes": "3", "max_large_counts": "3", "len": "4",
    }
    if what in ("amode", "whence"):
        return {"amode": "MPI_MODE_CREATE | MPI_MODE_RDWR", "whence": "MPI_SEEK_SET"}[what]
    if what in ("dest", "source") and real and "recv" not in function.lower():
        return "0"
    if what == "typeclass":
        return "MPI_TYPECLASS_INTEGER"
    if what == "size" and "darray" in function:
        return "1"
    if what == "n" and function in ("MPI_Info_get_nthkey", "MPI_Session_get_nth_pset"):
        return "0"
    if what.endswith("_index"):
        return "0"
    return numbers.get(what, "1")


sys.exit(main())
