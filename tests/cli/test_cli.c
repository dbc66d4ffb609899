/* SPDX-License-Identifier: Apache-2.0 */
/* test_cli.c: the program `reprise` from the command line: exit statuses, error lines, output, JSON, SVG, Ctrl-C.
 *
 * Runs the program at REPRISE_PROGRAM (ctest sets it), else REPRISE_BIN, else build/reprise. Tests with a model use
 * stories260K of REPRISE_TEST_DATA; tests without their program or data are reported as skipped. A small parser below
 * reads JSON, independent of the library that wrote it.
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <ctype.h>
#include <dirent.h>
#include <expat.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGS_MAX 40
#define PATH_BYTES 1024

static char program[PATH_BYTES], model[PATH_BYTES], answer_file[PATH_BYTES], folder[] = "/tmp/reprise-cli-XXXXXX";
static bool have_program, have_model;

/* ---- Running ---- */

typedef struct outcome {
    int status; /* exit status, or -signal */
    char *out, *err;
    size_t n_out;
} outcome;

/* The same name gives the same string, which stays. */
static const char *path_in_folder(const char *name) {
    static char paths[16][PATH_BYTES];
    static size_t n;
    for (size_t i = 0; i < n; i++)
        if (strcmp(strrchr(paths[i], '/') + 1, name) == 0) return paths[i];
    assert_true(n < 16);
    snprintf(paths[n], PATH_BYTES, "%s/%s", folder, name);
    return paths[n++];
}

static const char *write_file(const char *name, const char *content) {
    const char *path = path_in_folder(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(content, f);
    assert_int_equal(fclose(f), 0);
    return path;
}

static char *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t used = 0, capacity = 1 << 16, got;
    char *data = malloc(capacity);
    assert_non_null(data);
    while ((got = fread(data + used, 1, capacity - used - 1, f)) > 0) {
        used += got;
        if (capacity - used > 1) continue;
        data = realloc(data, capacity *= 2);
        assert_non_null(data);
    }
    fclose(f);
    data[used] = '\0';
    if (n != NULL) *n = used;
    return data;
}

static void redirect(const char *path, int flags, int to) {
    int fd = open(path, flags, 0600);
    if (fd < 0 || dup2(fd, to) < 0) _exit(99);
    close(fd);
}

/* The child: files for its three streams, and the C locale except for `locale`. */
static void exec_program(char *const *args, const char *locale, const char *out) {
    redirect(path_in_folder("in"), O_RDONLY, 0);
    redirect(out != NULL ? out : path_in_folder("out"), O_WRONLY | O_CREAT | O_TRUNC, 1);
    redirect(path_in_folder("err"), O_WRONLY | O_CREAT | O_TRUNC, 2);
    setenv("LC_ALL", locale, 1);
    execv(program, args);
    _exit(98);
}

static int wait_for(pid_t child) {
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static outcome run_full(const char *in, const char *locale, const char *out, va_list list) {
    char *args[ARGS_MAX] = {program};
    int n = 1;
    while (n < ARGS_MAX - 1 && (args[n] = va_arg(list, char *)) != NULL) n++;
    write_file("in", in);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) exec_program(args, locale, out);
    outcome o = {.status = wait_for(child)};
    o.out = read_file(out != NULL ? "/dev/null" : path_in_folder("out"), &o.n_out);
    o.err = read_file(path_in_folder("err"), NULL);
    return o;
}

/* Runs the program with arguments up to NULL and `in` as standard input. */
static outcome run(const char *in, ...) {
    va_list list;
    va_start(list, in);
    outcome o = run_full(in, "C", NULL, list);
    va_end(list);
    return o;
}

static outcome run_as(const char *locale, const char *out, ...) {
    va_list list;
    va_start(list, out);
    outcome o = run_full("", locale, out, list);
    va_end(list);
    return o;
}

static void outcome_free(outcome *o) {
    free(o->out);
    free(o->err);
}

/* Expects an error of exactly one line that contains the given text. */
static void expect_error(outcome o, int status, const char *says) {
    const char *newline = strchr(o.err, '\n');
    if (o.status != status || strncmp(o.err, "reprise: ", 9) != 0 || strstr(o.err, says) == NULL)
        fail_msg("status %d, not %d, or '%s' not in: %s", o.status, status, says, o.err);
    assert_non_null(newline);
    assert_int_equal(newline[1], '\0');
    outcome_free(&o);
}

static void expect_fine(const outcome *o) {
    if (o->status != 0) fail_msg("status %d: %s", o->status, o->err);
}

#define NEEDS_PROGRAM() \
    if (!have_program) skip()
#define NEEDS_MODEL() \
    if (!have_program || !have_model) skip()

/* ---- JSON ---- */

static const char *blank(const char *s) { return s + strspn(s, " \t\r\n"); }

static const char *json_string_end(const char *s) {
    for (s++; *s != '"'; s++) {
        if ((unsigned char)*s < 0x20) return NULL;
        if (*s == '\\' && strchr("\"\\/bfnrtu", *++s) == NULL) return NULL;
    }
    return s + 1;
}

/* The end of the value at s, or NULL if it is not JSON. */
static const char *json_end(const char *s) {
    s = blank(s);
    if (*s == '"') return json_string_end(s);
    if (*s == '{' || *s == '[') {
        char close = *s == '{' ? '}' : ']';
        s = blank(s + 1);
        if (*s == close) return s + 1;
        for (;; s++) {
            if (close == '}') {
                s = blank(s);
                if (*s != '"' || (s = json_string_end(s)) == NULL || *(s = blank(s)) != ':') return NULL;
                s++;
            }
            if ((s = json_end(s)) == NULL) return NULL;
            s = blank(s);
            if (*s == close) return s + 1;
            if (*s != ',') return NULL;
        }
    }
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++)
        if (strncmp(s, words[i], strlen(words[i])) == 0) return s + strlen(words[i]);
    char *end;
    strtod(s, &end);
    return end != s && (isdigit((unsigned char)*s) || *s == '-') ? end : NULL;
}

/* The value of a field of the object at s. */
static const char *json_find(const char *s, const char *field) {
    size_t n = strlen(field);
    for (s = blank(s) + 1; *(s = blank(s)) == '"'; s++) {
        const char *name = s + 1, *value = blank(json_string_end(s)) + 1;
        if (strncmp(name, field, n) == 0 && name[n] == '"') return blank(value);
        s = blank(json_end(value));
        if (*s != ',') return NULL;
    }
    return NULL;
}

static const char *json_field(const char *object, const char *field) {
    const char *value = json_find(object, field);
    if (value == NULL) fail_msg("no field '%s' in %.200s", field, object);
    return value;
}

static long json_long(const char *object, const char *field) { return strtol(json_field(object, field), NULL, 10); }

static bool json_is(const char *object, const char *field, const char *text) {
    const char *value = json_field(object, field);
    return *value == '"' && strncmp(value + 1, text, strlen(text)) == 0 && value[1 + strlen(text)] == '"';
}

/* The element after `value` in its array, or the first for NULL; NULL after the last. */
static const char *json_next(const char *array, const char *value) {
    const char *s = blank(value == NULL ? array + 1 : json_end(value));
    if (value == NULL) return *s == ']' ? NULL : s;
    return *s == ',' ? blank(s + 1) : NULL;
}

static size_t json_length(const char *array) {
    size_t n = 0;
    assert_int_equal(*array, '[');
    for (const char *e = json_next(array, NULL); e != NULL; e = json_next(array, e)) n++;
    return n;
}

/* One object on one line; returns the text after it. */
static const char *expect_json_line(const char *line) {
    const char *end = *line == '{' ? json_end(line) : NULL;
    if (end == NULL || *end != '\n') fail_msg("not one JSON object on a line: %.300s", line);
    return end + 1;
}

/* ---- Documents ---- */

/* Modules without parameters: every view is one tile. Texts contain characters that XML must escape. */
static const char schema_text[] =
    "<schema name=\"cities\">\n<system>Be \xC3\xA9 brief &amp; &lt;kind&gt;.</system>\n<user>\n"
    "<module name=\"plan\">Plan a trip to this city.<union><module name=\"miami\">Miami is by the sea.</module>"
    "<module name=\"lisbon\">Lisbon has seven hills.</module></union></module>\n"
    "<module name=\"diet\" cache=\"false\">The traveller eats no meat.</module></user>\n"
    "<scaffold modules=\"plan/miami diet\"/></schema>\n";
static const char prompt_text[] = "<prompt schema=\"cities\"><plan><miami/></plan><diet/> Where to surf?</prompt>\n";

typedef struct documents {
    const char *schema, *prompt;
} documents;

static documents write_documents(void) {
    return (documents){write_file("cities.xml", schema_text), write_file("prompt.xml", prompt_text)};
}

static const char *golden_model(const char *name) {
    static char path[PATH_BYTES];
    const char *source = getenv("REPRISE_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/tests/golden/%s.gguf", source ? source : ".", name);
    return path;
}

/* ---- Used wrongly ---- */

static void test_wrong_use(void **state) {
    (void)state;
    NEEDS_PROGRAM();
    expect_error(run("", NULL), 2, "no command");
    expect_error(run("", "rnu", NULL), 2, "'run'");
    expect_error(run("", "help", "tokenise", NULL), 2, "'tokenize'");
    expect_error(run("", "run", "--promt", "x", NULL), 2, "did you mean '--prompt'");
    expect_error(run("", "run", "--temperature", "1", NULL), 2, "did you mean '--temp'");
    expect_error(run("", "run", "--qqqqqqq", NULL), 2, "see 'reprise run --help'");
    expect_error(run("", "run", "-p", "x", NULL), 2, "--model");
    expect_error(run("", "run", "-m", NULL), 2, "needs a value");
    expect_error(run("", "run", "-m", "x", NULL), 2, "needs a prompt");
    expect_error(run("", "run", "-m", "x", "-p", "a", "--pml", "b", NULL), 2, "exclude each other");
    expect_error(run("", "run", "-m", "x", "--pml", "-", "--pml", "-", NULL), 2, "twice");
    expect_error(run("", "run", "-m", "x", "-p", "a", "b", NULL), 2, "unexpected argument 'b'");
    expect_error(run("", "run", "-m", "x", "-p", "a", "--json=yes", NULL), 2, "takes no value");
    expect_error(run("", "run", "-m", "x", "-p", "a", "--logprobs", "3", NULL), 2, "give --json too");
    char tenant[258] = "";
    memset(tenant, 't', sizeof tenant - 1);
    expect_error(run("", "run", "-m", "x", "-p", "a", "--tenant", tenant, NULL), 2,
                 "--tenant has 257 bytes: give at most 256");
    expect_error(run("", "inspect", "-m", "x", "--svg", "y", NULL), 2, "--schema");
    expect_error(run("", "inspect", "-m", "x", "--pml", "y", NULL), 2, "--schema");
    expect_error(run("", "run", "-m", "x", "-p", "a", "two\nlines", NULL), 2, "two?lines");
}

static void test_wrong_values(void **state) {
    (void)state;
    NEEDS_PROGRAM();
    static const char *const wrong[][2] = {
        {"-n", "0"},
        {"-n", "-3"},
        {"-n", "12x"},
        {"-n", ""},
        {"-n", "99999999999"},
        {"--temp", "-1"},
        {"--temp", "nan"},
        {"--temp", "warm"},
        {"--seed", "-1"},
        {"--seed", "18446744073709551616"},
        {"--chunk", "4097"},
        {"--ram", "2X"},
        {"--ram", "0"},
        {"--ram", "K"},
        {"--ram", "17179869184G"},
        {"--reuse", "maybe"},
        {"--kv-format", "f64"},
        {"--repeat", "0"},
        {"--threads", "-1"},
        {"--ctx", "1e3"},
        {"--top-k", "-1"},
        {"--top-p", "1.1"},
        {"--min-p", "-1"},
        {"--typical", "2"},
        {"--repeat-penalty", "0"},
        {"--repeat-last", "-2"},
        {"--presence-penalty", "101"},
        {"--frequency-penalty", "x"},
        {"--logprobs", "101"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        expect_error(run("", "run", "-m", "x", "-p", "a", wrong[i][0], wrong[i][1], NULL), 2, "give ");
    expect_error(run("", "run", "-m", "x", "-p", "a", "--chat-format", "chtml", NULL), 2, "did you mean 'chatml'");
    expect_error(run("", "run", "-m", "x", "-p", "a", "--chat-format", "none-of-them", NULL), 2, "chatml");
}

/* Each in one line that names the option. */
static void test_layers_in_f16(void **state) {
    (void)state;
    static const char *const rows[][3] = {
        {"f16", "0", "--kv-f16-layers is for KV of less than 16 bits, but the KV format is f16"},
        {"int8", "0,,1", "--kv-f16-layers '0,,1': give layers and ranges, as in 0,1,27 or 0-2, or windows"},
        {"int8", "999", "--kv-f16-layers '999': there is no layer 999"},
        {"k4v2", "windows", "--kv-f16-layers 'windows': no layer of this model has a sliding window"},
    };
    NEEDS_MODEL();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_error(
            run("", "run", "-m", model, "-p", "Once", "--kv-format", rows[i][0], "--kv-f16-layers", rows[i][1], NULL),
            1, rows[i][2]);
    outcome o =
        run("", "run", "-m", model, "-p", "Once", "-n", "4", "--kv-format", "int8", "--kv-f16-layers", "0", NULL);
    expect_fine(&o);
    outcome_free(&o);
}

static void test_reduced_kv(void **state) {
    (void)state;
    static const char *const rows[][3] = {
        {"12x", "snapkv", "--kv-keep '12x': give a number of slots (1024), a share (12.5%, to 100%) or off"},
        {"10%", "kvzip", "--kv-method 'kvzip': give snapkv, sinks or quest"},
    };
    NEEDS_MODEL();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_error(
            run("", "run", "-m", model, "-p", "Once", "--kv-keep", rows[i][0], "--kv-method", rows[i][1], NULL), 2,
            rows[i][2]);
    expect_error(run("", "run", "-m", model, "-p", "Once", "--kv-method", "sinks", NULL), 2,
                 "--kv-method 'sinks' without --kv-keep");
    outcome off = run("", "run", "-m", model, "-p", "Once", "-n", "4", "--kv-keep", "off", "--json", NULL);
    expect_fine(&off);
    assert_non_null(strstr(off.out, "\"kv_reduction\":{\"method\":\"\""));
    outcome_free(&off);
    outcome o =
        run("", "run", "-m", model, "-p",
            "A ship sailed to the old harbour, and then it came back with forty barrels of fish and one letter for "
            "the mayor, who could not read.",
            "-n", "4", "--kv-keep", "3", "--kv-method", "sinks", "--json", "--ignore-eos", NULL);
    expect_fine(&o);
    assert_non_null(strstr(o.out, "\"method\":\"sinks\""));
    outcome_free(&o);
}

/* Options of llama.cpp: equal ones are accepted; the error for any other gives its name here, or the remedy. */
static void test_llama_options(void **state) {
    (void)state;
    NEEDS_PROGRAM();
    static const char *const rows[][4] = {
        {"run", "-ngl", "0", "'-ngl' of 'reprise run': use --device-layers"},
        {"run", "--n-gpu-layers=0", NULL, "use --device-layers"},
        {"serve", "-np", "4", "use --sequences"},
        {"serve", "--parallel", "4", "use --sequences"},
        {"run", "-np", "4", "it is --sequences of 'reprise serve'"},
        {"run", "--n-predict", "5", "use --max-tokens"},
        {"run", "--predict=5", NULL, "use --max-tokens"},
        {"run", "--cache-type-k", "q8_0", "use --kv-format"},
        {"run", "-ctv", "f16", "use --kv-format"},
        {"run", "--ctx-size", "512", "use --ctx"},
        {"run", "-b", "512", "use --chunk"},
        {"run", "-s", "1", "use --seed"},
        {"run", "-bf", "prompt.txt", "use --file"},
        {"run", "-hf", "someone/some-model", "'reprise pull URL' downloads"},
        {"serve", "-a", "m", "use --name"},
        {"serve", "--api-key", "secret", "use --api-keys"},
        {"run", "--mirostat", "2", "this sampler is not supported"},
        {"run", "-fa", NULL, "leave it out"},
        {"run", "--no-mmap", NULL, "leave it out"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_error(run("", rows[i][0], "-m", "x", rows[i][1], rows[i][2], NULL), 2, rows[i][3]);
    expect_error(run("", "run", "-m", "x", "-p", "a", "-c", "1x", NULL), 2, "--ctx '1x'");
    expect_error(run("", "run", "-m", "x", "-p", "a", "-t", "1x", NULL), 2, "--threads '1x'");
    expect_error(run("", "eval", "-m", "x", "-t", "no-such.jsonl", NULL), 1, "no-such.jsonl"); /* tasks */
    NEEDS_MODEL();
    outcome ours = run("", "run", "-m", model, "-p", "Once", "-n", "8", "--ctx", "64", "--threads", "1", NULL);
    outcome theirs = run("", "run", "-m", model, "-p", "Once", "-n8", "-c64", "-t", "1", NULL);
    expect_fine(&ours);
    expect_fine(&theirs);
    assert_string_equal(ours.out, theirs.out);
    outcome_free(&ours);
    outcome_free(&theirs);
}

/* What is done although it is hardly meant: one line each, and the answer comes. */
static void test_warnings(void **state) {
    (void)state;
    NEEDS_MODEL();
    const char *schema =
        write_file("w.xml", "<schema name='w'>One <module name='a'>of <param name='n' len='4'/> days</module>"
                            "<module name='b'>or <param name='m' len='4' required='true'/></module></schema>");
    const char *missing = write_file("w1.xml", "<prompt schema='w'><a/> Once</prompt>"),
               *given = write_file("w2.xml", "<prompt schema='w'><a n='3'/> Once</prompt>");
    const char *required = write_file("w3.xml", "<prompt schema='w'><b/> Once</prompt>");
    outcome o = run("", "run", "-m", model, "--schema", schema, "--pml", missing, "-n", "2", NULL);
    assert_int_equal(o.status, 0);
    assert_non_null(strstr(o.err, "w1.xml: parameter 'n' of 'a' has no argument: it stays empty\n"));
    assert_true(strncmp(o.err, "warning: ", 9) == 0 && strlen(o.out) > 0);
    outcome_free(&o);
    o = run("", "run", "-m", model, "--schema", schema, "--pml", missing, "-n", "2", "--json", NULL);
    assert_non_null(strstr(o.out, "\"warnings\":"));
    assert_non_null(strstr(o.out, "parameter 'n' of 'a' has no argument"));
    outcome_free(&o);
    o = run("", "run", "-m", model, "--schema", schema, "--pml", given, "-n", "2", NULL);
    expect_fine(&o);
    outcome_free(&o);
    expect_error(run("", "run", "-m", model, "--schema", schema, "--pml", required, "-n", "2", NULL), 1,
                 "w3.xml:1:20: parameter 'm' of 'b' requires an argument");
    o = run("", "run", "-m", model, "-p", "Once", "-n", "2", "-c", "100000", NULL);
    assert_int_equal(o.status, 0);
    assert_non_null(strstr(o.err, "warning: --ctx 100000: the model was trained for 2048 positions"));
    outcome_free(&o);
}

static void test_failures(void **state) {
    (void)state;
    NEEDS_PROGRAM();
    const char *junk = write_file("junk.gguf", "this is not a model");
    expect_error(run("", "run", "-m", "/nowhere/m.gguf", "-p", "x", NULL), 1, "/nowhere/m.gguf");
    expect_error(run("", "run", "-m", junk, "-p", "x", NULL), 1, "junk.gguf");
    expect_error(run("", "run", "-m", junk, "--pml", "/nowhere/p.xml", NULL), 1, "/nowhere/p.xml");
    expect_error(run("", "run", "-m", junk, "--pml", folder, NULL), 1, folder);
    expect_error(run("", "tokenize", "-m", junk, NULL), 1, "junk.gguf");
    expect_error(run("", "inspect", "-m", junk, NULL), 1, "junk.gguf");
}

/* ---- Help ---- */

static void test_help(void **state) {
    (void)state;
    NEEDS_PROGRAM();
    static const char *const commands[] = {"run", "inspect", "tokenize", "bench"};
    outcome all = run("", "help", NULL);
    expect_fine(&all);
    for (size_t i = 0; i < 4; i++) {
        outcome a = run("", commands[i], "--help", NULL), b = run("", "help", commands[i], NULL);
        expect_fine(&a);
        assert_string_equal(a.out, b.out);
        assert_non_null(strstr(a.out, "--model"));
        assert_non_null(strstr(all.out, commands[i]));
        outcome_free(&a);
        outcome_free(&b);
    }
    outcome_free(&all);
    outcome version = run("", "--version", NULL);
    expect_fine(&version);
    assert_int_equal(strncmp(version.out, "reprise 0.", 10), 0);
    outcome_free(&version);
}

/* Every option that a command's help lists is in its man page, written .It ... Fl -name. */
static void test_man_pages(void **state) {
    (void)state;
    const char *source = getenv("REPRISE_SOURCE_DIR");
    NEEDS_PROGRAM();
    if (source == NULL) skip();
    static const char *const commands[] = {"run", "inspect", "tokenize", "quantize", "bench", "serve"};
    for (size_t i = 0; i < 6; i++) {
        char path[PATH_BYTES], want[64];
        snprintf(path, sizeof path, "%s/docs/man/reprise-%s.1", source, commands[i]);
        char *page = read_file(path, NULL);
        outcome help = run("", commands[i], "--help", NULL);
        int found = 0;
        for (const char *o = strstr(help.out, "options:"); (o = strstr(o, "\n  ")) != NULL; o += 3) {
            const char *name = strncmp(o + 7, "--", 2) == 0 && o[6] == ' ' ? o + 9 : NULL;
            if (name == NULL) continue;
            snprintf(want, sizeof want, "Fl -%.*s", (int)strcspn(name, " \n"), name);
            if (strstr(page, want) == NULL) fail_msg("%s does not have %s", path, want);
            found++;
        }
        assert_true(found >= 2);
        outcome_free(&help);
        free(page);
    }
}

/* ---- tokenize ---- */

static void test_tokenize(void **state) {
    (void)state;
    NEEDS_MODEL();
    outcome lines = run("a\tb\\\xFF\n", "tokenize", "-m", model, NULL);
    outcome ids = run("a\tb\\\xFF\n", "tokenize", "--ids", "--model", model, NULL);
    expect_fine(&lines);
    expect_fine(&ids);
    char *rest = ids.out;
    for (char *line = strtok(lines.out, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char *tab = strchr(line, '\t');
        assert_non_null(tab);
        assert_int_equal(strtol(line, NULL, 10), strtol(rest, &rest, 10));
        for (char *c = tab + 1; *c != '\0'; c++) assert_true((unsigned char)*c >= 0x20);
    }
    assert_string_equal(rest, "\n");
    outcome_free(&lines);
    outcome_free(&ids);
    outcome plain = run("", "tokenize", "-m", model, "--ids", NULL),
            bos = run("", "tokenize", "-m", model, "--ids", "--bos", NULL);
    assert_string_equal(plain.out, "\n");
    assert_string_equal(bos.out, "1\n");
    outcome_free(&plain);
    outcome_free(&bos);
    outcome special = run("<s>", "tokenize", "-m", model, "--ids", "--special", NULL);
    outcome trusted = run("<s>", "tokenize", "-m", model, "--ids", NULL);
    assert_string_equal(special.out, "1\n");
    assert_string_not_equal(trusted.out, "1\n");
    outcome_free(&special);
    outcome_free(&trusted);
}

/* Files that hold a vocabulary and no weights, of any architecture: these here, and llama.cpp's. */
static void test_tokenize_vocabularies(void **state) {
    (void)state;
    NEEDS_PROGRAM();
    static const char *const names[] = {"vocab/bpe", "vocab/merged", "vocab/unigram"}, *const others[] = {
                                                                                           "falcon", "gpt-2",
                                                                                           "llama-spm", "phi-3"};
    const char *data = getenv("REPRISE_TEST_DATA");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        outcome o = run("Hello world", "tokenize", "-m", golden_model(names[i]), "--ids", NULL);
        expect_fine(&o);
        assert_true(strtol(o.out, NULL, 10) > 0);
        outcome_free(&o);
        expect_error(run("", "run", "-m", golden_model(names[i]), "-p", "a", NULL), 1, "gguf");
    }
    for (size_t i = 0; data != NULL && i < sizeof others / sizeof *others; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/vocab/ggml-vocab-%s.gguf", data, others[i]);
        outcome o = run("Hello world", "tokenize", "-m", path, NULL);
        expect_fine(&o);
        assert_non_null(strstr(o.out, "world\n"));
        outcome_free(&o);
    }
}

/* ---- run ---- */

static void test_greedy_story(void **state) {
    (void)state;
    NEEDS_MODEL();
    size_t n = 0;
    char *expected = read_file(answer_file, &n);
    outcome o = run("", "run", "-m", model, "-p", "", "-n", "200", "--temp", "0", NULL);
    expect_fine(&o);
    assert_string_equal(o.out, expected);
    assert_string_equal(o.err, "");
    outcome_free(&o);
    outcome verbose = run("", "run", "-m", model, "--prompt=", "-n200", "-v", NULL);
    assert_string_equal(verbose.out, expected);
    assert_non_null(strstr(verbose.err, "prompt 1 tokens (0 cached, 1 fresh)"));
    assert_non_null(strstr(verbose.err, "answer 200 tokens"));
    outcome_free(&verbose);
    free(expected);
}

static void expect_run_object(const char *o) {
    static const char *const timings[] = {"load_ms", "module_prefill_ms", "plan_ms", "ttft_ms",
                                          "decode_ms", "decode_tokens_per_second", "saved_ms"};
    const char *usage = json_field(o, "usage"), *plan = json_field(o, "plan");
    assert_int_equal(*json_field(o, "text"), '"');
    assert_int_equal(json_length(json_field(o, "tokens")), json_long(usage, "completion_tokens"));
    assert_int_equal(json_long(usage, "prompt_tokens"),
                     json_long(usage, "cached_tokens") + json_long(usage, "fresh_tokens"));
    assert_int_equal(json_long(o, "bytes_copied"), 0);
    for (size_t i = 0; i < 6; i++) assert_true(strtod(json_field(json_field(o, "timings"), timings[i]), NULL) >= 0);
    long tokens = 0;
    for (const char *p = json_next(plan, NULL); p != NULL; p = json_next(plan, p)) {
        bool view = json_is(p, "kind", "view");
        assert_true(view || json_is(p, "kind", "run"));
        assert_int_equal(*json_field(p, "module"), '"');
        assert_true(json_long(p, "position") >= 0);
        assert_true(strchr("tf", *json_field(p, "exact")) != NULL);
        if (!view) assert_int_equal(json_long(p, "shift"), 0);
        assert_int_equal(strcspn(json_field(p, "key") + 1, "\""), view ? 16 : 0);
        tokens += json_long(p, "tokens");
    }
    assert_int_equal(tokens, json_long(usage, "prompt_tokens"));
}

/* The first answer prefills the modules, the second reuses them: the texts are equal, and the plan shows it. */
static void test_run_json(void **state) {
    (void)state;
    NEEDS_MODEL();
    documents d = write_documents();
    outcome o = run("", "run", "-m", model, "--schema", d.schema, "--pml", d.prompt, "--pml", d.prompt, "-n", "8",
                    "--json", NULL);
    expect_fine(&o);
    const char *first = o.out, *second = expect_json_line(first);
    assert_string_equal(expect_json_line(second), "");
    expect_run_object(first);
    expect_run_object(second);
    assert_int_equal(json_long(json_field(first, "usage"), "cached_tokens"), 0);
    assert_true(json_long(json_field(second, "usage"), "cached_tokens") > 0);
    const char *a = json_field(first, "tokens"), *b = json_field(second, "tokens");
    assert_int_equal(json_end(a) - a, json_end(b) - b);
    assert_memory_equal(a, b, (size_t)(json_end(a) - a));
    assert_true(json_is(first, "finish_reason", "length") || json_is(first, "finish_reason", "stop"));
    assert_true(json_is(first, "prompt", d.prompt));
    outcome_free(&o);
}

/* The key of the first part of the second answer's plan: a text that was found. */
static char *found_key(const char *tenant) {
    static const char text[] = "Once upon a time there was a girl";
    outcome o = run("", "run", "-m", model, "-p", text, "-p", text, "-n", "4", "--json", "--tenant", tenant, NULL);
    expect_fine(&o);
    const char *part = json_next(json_field(expect_json_line(o.out), "plan"), NULL);
    assert_true(json_is(part, "tier", "ram"));
    char *key = strndup(json_field(part, "key"), 18);
    outcome_free(&o);
    return key;
}

static void test_run_tenant(void **state) {
    (void)state;
    NEEDS_MODEL();
    char *a = found_key("a"), *again = found_key("a"), *b = found_key("b");
    assert_string_equal(a, again);
    assert_string_not_equal(a, b);
    free(a);
    free(again);
    free(b);
}

/* ---- run: sampling ---- */

static void test_sampling_is_seeded(void **state) {
    (void)state;
    NEEDS_MODEL();
    const char *seeds[] = {"1", "1", "2"}, *threads[] = {"1", "2", "2"};
    outcome o[3];
    for (int i = 0; i < 3; i++) {
        o[i] = run("", "run", "-m", model, "-p", "Once", "-n", "40", "--temp", "1.2", "--top-k", "50", "--typical",
                   "0.98", "--top-p", "0.95", "--min-p", "0.01", "--repeat-penalty", "1.1", "--repeat-last", "-1",
                   "--presence-penalty", "0.1", "--frequency-penalty", "-0.1", "--seed", seeds[i], "--threads",
                   threads[i], NULL);
        expect_fine(&o[i]);
    }
    assert_string_equal(o[0].out, o[1].out);
    assert_string_not_equal(o[0].out, o[2].out);
    outcome one = run("", "run", "-m", model, "-p", "Once", "-n", "40", "--temp", "2", "--top-k", "1", NULL);
    outcome greedy = run("", "run", "-m", model, "-p", "Once", "-n", "40", NULL);
    outcome forgetful =
        run("", "run", "-m", model, "-p", "Once", "-n", "40", "--repeat-penalty", "2", "--repeat-last", "0", NULL);
    outcome penalized = run("", "run", "-m", model, "-p", "Once", "-n", "40", "--repeat-penalty", "2", NULL);
    assert_string_equal(one.out, greedy.out);
    assert_string_equal(forgetful.out, greedy.out);
    assert_string_not_equal(penalized.out, greedy.out);
    for (int i = 0; i < 3; i++) outcome_free(&o[i]);
    outcome_free(&one);
    outcome_free(&greedy);
    outcome_free(&forgetful);
    outcome_free(&penalized);
}

static void test_grammar(void **state) {
    (void)state;
    NEEDS_MODEL();
    const char *good = write_file("good.gbnf", "root ::= [a-z]{3} \" \" [0-9]{2} # a word and a number\n");
    outcome o = run("", "run", "-m", model, "-p", "Once", "--grammar", good, NULL);
    expect_fine(&o);
    assert_int_equal(o.n_out, 6);
    assert_true(o.out[3] == ' ' && o.out[4] >= '0' && o.out[4] <= '9');
    outcome_free(&o);
    o = run("", "run", "-m", model, "-p", "Once", "-n", "40", "--grammar", good, "--grammar-trigger", "a", "--json",
            NULL);
    expect_fine(&o);
    assert_true(json_is(o.out, "finish_reason", "stop"));
    outcome_free(&o);
    const char *bad = write_file("bad.gbnf", "root ::= one\noen ::= \"a\"\n");
    expect_error(run("", "run", "-m", model, "-p", "Once", "--grammar", bad, NULL), 1,
                 "grammar:1:10: unknown rule 'one': did you mean 'oen'?");
    expect_error(run("", "run", "-m", model, "-p", "Once", "--grammar", "no-such-file", NULL), 1, "no-such-file");
    expect_error(run("", "run", "-m", model, "-p", "Once", "--grammar-trigger", "a", NULL), 2,
                 "give --grammar FILE, too");
}

/* The answer ends before the stop string, which spans several tokens, and no prefix of it is shown. */
static void test_stop(void **state) {
    (void)state;
    NEEDS_MODEL();
    outcome whole = run("", "run", "-m", model, "-p", "Once", "-n", "40", NULL);
    const char *comma = strchr(whole.out, ',');
    assert_non_null(comma);
    char stop[8];
    snprintf(stop, sizeof stop, "%.6s", comma - 2);
    outcome text = run("", "run", "-m", model, "-p", "Once", "-n", "40", "--stop", "not in it", "--stop", stop, NULL);
    outcome json = run("", "run", "-m", model, "-p", "Once", "-n", "40", "--stop", stop, "--json", NULL);
    size_t left = (size_t)(strstr(whole.out, stop) - whole.out);
    assert_int_equal(text.n_out, left);
    assert_memory_equal(text.out, whole.out, left);
    assert_true(json_is(json.out, "finish_reason", "stop"));
    assert_int_equal(json_end(json_field(json.out, "text")) - json_field(json.out, "text") - 2, left);
    outcome_free(&whole);
    outcome_free(&text);
    outcome_free(&json);
    expect_error(run("", "run", "-m", model, "-c", "2", "-p", "Once upon a time, there was a little girl", NULL), 1,
                 "raise --ctx (the model");
    expect_error(run("", "run", "-m", model, "-p", "Once", "--stop", "", NULL), 2, "--stop '' is empty");
    expect_error(run("", "run", "-m", model, "-p", "Once", "--stop", "\xff", NULL), 2, "stop string 1 is not UTF-8");
    char many[2000] = "";
    memset(many, 'a', sizeof many - 1);
    expect_error(run("", "run", "-m", model, "-p", "Once", "--stop", many, NULL), 2,
                 "has 1999 bytes: give at most 1024");
}

static void test_logit_bias(void **state) {
    (void)state;
    NEEDS_MODEL();
    outcome json = run("", "run", "-m", model, "-p", "Once", "-n", "1", "--json", NULL);
    char forbid[64];
    snprintf(forbid, sizeof forbid, "%ld=-inf", strtol(json_next(json_field(json.out, "tokens"), NULL), NULL, 10));
    outcome other = run("", "run", "-m", model, "-p", "Once", "-n", "1", "--json", "--logit-bias", forbid, NULL);
    outcome text = run("", "run", "-m", model, "-p", "Once", "-n", "5", "--logit-bias", " there=500", NULL);
    assert_true(strtol(json_next(json_field(other.out, "tokens"), NULL), NULL, 10) != strtol(forbid, NULL, 10));
    assert_string_equal(text.out, " there there there there there");
    outcome_free(&json);
    outcome_free(&other);
    outcome_free(&text);
    static const char *const wrong[] = {"5", "=1", "5=", "5=x", "5=1x", " zebra crossing=1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        expect_error(run("", "run", "-m", model, "-p", "Once", "--logit-bias", wrong[i], NULL), 2, "--logit-bias");
    expect_error(run("", "run", "-m", model, "-p", "Once", "--logit-bias", "512=1", NULL), 2,
                 "--logit-bias '512=1': give an id from 0 to 511");
    expect_error(run("", "run", "-m", model, "-p", "Once", "--logit-bias", "99999999999999999999=1", NULL), 2,
                 "give an id");
    expect_error(run("", "run", "-m", model, "-p", "Once", "--logit-bias", "5=nan", NULL), 2, "bias of token 5");
}

/* Greedy sampling takes the first of the most likely tokens, with the token's own log-probability. */
static void test_logprobs(void **state) {
    (void)state;
    NEEDS_MODEL();
    outcome o = run("", "run", "-m", model, "-p", "Once", "-n", "6", "--json", "--logprobs", "3", NULL);
    expect_fine(&o);
    assert_string_equal(expect_json_line(o.out), "");
    const char *list = json_field(o.out, "logprobs"), *token = NULL, *tokens = json_field(o.out, "tokens");
    assert_int_equal(json_length(list), 6);
    for (const char *p = json_next(list, NULL); p != NULL; p = json_next(list, p)) {
        const char *top = json_field(p, "top"), *first = json_next(top, NULL);
        double last = 0;
        token = json_next(tokens, token);
        assert_int_equal(json_length(top), 3);
        assert_int_equal(json_long(p, "token"), strtol(token, NULL, 10));
        assert_int_equal(json_long(p, "token"), json_long(first, "token"));
        assert_true(strtod(json_field(p, "logprob"), NULL) == strtod(json_field(first, "logprob"), NULL));
        for (const char *t = first; t != NULL; t = json_next(top, t)) {
            double logprob = strtod(json_field(t, "logprob"), NULL);
            assert_int_equal(*json_field(t, "text"), '"');
            assert_true(logprob <= last);
            last = logprob;
        }
    }
    outcome_free(&o);
}

static void test_run_stdin(void **state) {
    (void)state;
    NEEDS_MODEL();
    documents d = write_documents();
    outcome file = run("", "run", "-m", model, "--schema", d.schema, "--pml", d.prompt, "-n", "6", NULL);
    outcome standard = run(prompt_text, "run", "-m", model, "--schema", d.schema, "--pml", "-", "-n", "6", NULL);
    expect_fine(&file);
    expect_fine(&standard);
    assert_string_equal(file.out, standard.out);
    outcome_free(&file);
    outcome_free(&standard);
    expect_error(
        run("<prompt schema='cities'><miamy/></prompt>", "run", "-m", model, "--schema", d.schema, "--pml", "-", NULL),
        1, "stdin:1:");
    expect_error(run("", "run", "-m", model, "--pml", d.prompt, NULL), 1, "cities");
}

/* One number for each entry of the vocabulary and token; the largest is the token that greedy took. */
static void test_dump_logits(void **state) {
    (void)state;
    NEEDS_MODEL();
    const char *dump = path_in_folder("logits");
    outcome o = run("", "run", "-m", model, "-p", "", "-n", "3", "--json", "--dump-logits", dump, NULL);
    expect_fine(&o);
    size_t n = 0;
    unsigned char *data = (unsigned char *)read_file(dump, &n);
    assert_int_equal(n, 3 * 512 * 4);
    const char *token = NULL, *tokens = json_field(o.out, "tokens");
    for (int t = 0; t < 3; t++) {
        int best = 0;
        float largest = 0;
        for (int i = 0; i < 512; i++) {
            const unsigned char *p = data + 4 * (512 * t + i);
            uint32_t bits = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
            float v;
            memcpy(&v, &bits, sizeof v);
            if (i == 0 || v > largest) largest = v, best = i;
        }
        token = json_next(tokens, token);
        assert_int_equal(strtol(token, NULL, 10), best);
    }
    free(data);
    outcome_free(&o);
    expect_error(run("", "run", "-m", model, "-p", "", "--dump-logits", "/nowhere/x", NULL), 1, "/nowhere/x");
}

static void test_full_disk(void **state) {
    (void)state;
    NEEDS_MODEL();
    if (access("/dev/full", W_OK) != 0) skip();
    expect_error(run_as("C", "/dev/full", "run", "-m", model, "-p", "", "-n", "5", NULL), 1, "standard output");
    expect_error(run_as("C", "/dev/full", "run", "-m", model, "-p", "", "-n", "5", "--json", NULL), 1,
                 "standard output");
    expect_error(run("", "run", "-m", model, "-p", "", "-n", "5", "--json", "--dump-logits", "/dev/full", NULL), 1,
                 "/dev/full");
}

/* Endless repetition, interrupted after the first answer: complete output so far, and the exit status of the signal. */
static void test_interrupt(void **state) {
    (void)state;
    NEEDS_MODEL();
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    char *args[] = {program, "run", "-m", model, "-p", "", "-n", "20", "--json", "--repeat", "2000000000", NULL};
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        execv(program, args);
        _exit(98);
    }
    close(ends[1]);
    char byte, last = 0;
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(byte, '{');
    assert_int_equal(kill(child, SIGINT), 0);
    while (read(ends[0], &byte, 1) == 1) last = byte;
    close(ends[0]);
    assert_int_equal(wait_for(child), 130);
    assert_int_equal(last, '\n');
}

/* ---- inspect ---- */

static void test_inspect_model(void **state) {
    (void)state;
    NEEDS_MODEL();
    outcome text = run("", "inspect", "-m", model, NULL), json = run("", "inspect", "-m", model, "--json", NULL);
    expect_fine(&text);
    expect_fine(&json);
    assert_non_null(strstr(text.out, "512 tokens"));
    assert_string_equal(expect_json_line(json.out), "");
    assert_int_equal(json_long(json.out, "n_vocab"), 512);
    assert_int_equal(json_long(json.out, "n_layers"), 5);
    assert_true(json_is(json.out, "architecture", "llama"));
    assert_int_equal(strcspn(json_field(json.out, "fingerprint") + 1, "\""), 64);
    outcome_free(&text);
    outcome_free(&json);
}

/* Features of a family are shown; a layout that it does not support is an error with a reason. */
static void test_families(void **state) {
    (void)state;
    NEEDS_PROGRAM();
    static const struct {
        const char *name, *says;
    } rows[] = {{"gemma3", "24 tokens, in 6 of 7 layers"},
                {"gpt-oss", "4, 2 active per token"},
                {"mpt", "128 positions, ALiBi\n"},
                {"gpt2", "learned: modules cannot be shifted"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        outcome o = run("", "inspect", "-m", golden_model(rows[i].name), NULL);
        expect_fine(&o);
        if (!strstr(o.out, rows[i].says)) fail_msg("'%s' not in: %s", rows[i].says, o.out);
        outcome_free(&o);
    }
    const char *schema =
        write_file("learned.xml", "<schema name='s' layout='packed'><module name='m'>a</module></schema>");
    expect_error(run("", "inspect", "-m", golden_model("gpt2"), "--schema", schema, NULL), 1,
                 "has learned positions, which are part of the KV");
    schema = write_file("learned.xml", "<schema name='s'><module name='m'>a</module></schema>");
    outcome o = run("", "inspect", "-m", golden_model("gpt2"), "--schema", schema, NULL);
    expect_fine(&o);
    assert_non_null(strstr(o.out, "fixed layout"));
    outcome_free(&o);
}

/* The tiles are the plan that `run` carries out. */
static void test_inspect_json(void **state) {
    (void)state;
    NEEDS_MODEL();
    documents d = write_documents();
    outcome o = run("", "inspect", "-m", model, "--schema", d.schema, "--pml", d.prompt, "--json", NULL);
    outcome r = run("", "run", "-m", model, "--schema", d.schema, "--pml", d.prompt, "-n", "1", "--json", NULL);
    expect_fine(&o);
    expect_fine(&r);
    expect_json_line(o.out);
    assert_true(json_is(o.out, "schema", "cities") && json_is(o.out, "layout", "packed") &&
                json_is(o.out, "scope", "path"));
    long tokens = 0;
    const char *tiles = json_field(o.out, "tiles"), *nodes = json_field(o.out, "nodes");
    for (const char *t = json_next(tiles, NULL); t != NULL; t = json_next(tiles, t)) tokens += json_long(t, "tokens");
    assert_int_equal(tokens, json_long(json_field(r.out, "usage"), "prompt_tokens"));
    int taken = 0, left = 0;
    for (const char *n = json_next(nodes, NULL); n != NULL; n = json_next(nodes, n)) {
        taken += json_is(n, "path", "plan/miami") && json_is(n, "kind", "module") && *json_field(n, "taken") == 't';
        left += json_is(n, "path", "plan/lisbon") && json_is(n, "kind", "module") && *json_field(n, "taken") == 'f';
    }
    assert_int_equal(taken, 1);
    assert_int_equal(left, 1);
    outcome_free(&o);
    outcome_free(&r);
}

static void test_inspect_tree(void **state) {
    (void)state;
    NEEDS_MODEL();
    documents d = write_documents();
    outcome ascii = run("", "inspect", "-m", model, "--schema", d.schema, "--pml", d.prompt, NULL);
    expect_fine(&ascii);
    for (size_t i = 0; i < ascii.n_out; i++) assert_true((unsigned char)ascii.out[i] < 0x80);
    assert_non_null(strstr(ascii.out, "`- module lisbon"));
    assert_non_null(strstr(ascii.out, "|- module miami"));
    outcome utf8 = run_as("C.UTF-8", NULL, "inspect", "-m", model, "--schema", d.schema, NULL);
    expect_fine(&utf8);
    if (strstr(utf8.out, "`- ") == NULL) assert_non_null(strstr(utf8.out, "\xE2\x94\x94\xE2\x94\x80 module lisbon"));
    for (const char *line = utf8.out; *line != '\0'; line += strcspn(line, "\n") + 1) {
        size_t chars = 0;
        for (size_t i = 0; line[i] != '\n'; i++) chars += ((unsigned char)line[i] & 0xC0) != 0x80;
        assert_true(chars <= 120);
    }
    outcome_free(&ascii);
    outcome_free(&utf8);
}

typedef struct svg_counts {
    int cached, fresh, texts;
} svg_counts;

static void XMLCALL count_element(void *user, const XML_Char *name, const XML_Char **attributes) {
    svg_counts *counts = user;
    counts->texts += strcmp(name, "text") == 0;
    for (int i = 0; strcmp(name, "rect") == 0 && attributes[i] != NULL; i += 2) {
        if (strcmp(attributes[i], "class") != 0) continue;
        counts->cached += strcmp(attributes[i + 1], "cached") == 0;
        counts->fresh += strcmp(attributes[i + 1], "fresh") == 0;
    }
}

static svg_counts parse_svg(const char *path) {
    svg_counts counts = {0};
    size_t n = 0;
    char *svg = read_file(path, &n);
    XML_Parser parser = XML_ParserCreate(NULL);
    XML_SetUserData(parser, &counts);
    XML_SetStartElementHandler(parser, count_element);
    if (XML_Parse(parser, svg, (int)n, 1) != XML_STATUS_OK)
        fail_msg("%s:%lu: %s", path, (unsigned long)XML_GetCurrentLineNumber(parser),
                 XML_ErrorString(XML_GetErrorCode(parser)));
    XML_ParserFree(parser);
    free(svg);
    return counts;
}

/* Well-formed whatever the documents hold, and one box for each tile besides the legend's. */
static void test_svg(void **state) {
    (void)state;
    NEEDS_MODEL();
    documents d = write_documents();
    const char *svg = path_in_folder("x.svg");
    outcome schema = run("", "inspect", "-m", model, "--schema", d.schema, "--svg", svg, NULL);
    expect_fine(&schema);
    svg_counts layout = parse_svg(svg);
    assert_true(layout.cached >= 1 + 4); /* anonymous text, plan, miami, lisbon */
    assert_int_equal(layout.fresh, 1 + 1);
    outcome prompt =
        run("", "inspect", "-m", model, "--schema", d.schema, "--pml", d.prompt, "--json", "--svg", svg, NULL);
    expect_fine(&prompt);
    svg_counts mosaic = parse_svg(svg);
    assert_int_equal(mosaic.cached + mosaic.fresh, 2 + json_length(json_field(prompt.out, "tiles")));
    outcome_free(&schema);
    outcome_free(&prompt);
    expect_error(run("", "inspect", "-m", model, "--schema", d.schema, "--svg", "/nowhere/x.svg", NULL), 1,
                 "/nowhere/x.svg");
}

/* ---- Set-up ---- */

static void find_program(void) {
    const char *path = getenv("REPRISE_PROGRAM");
    if (path == NULL) path = getenv("REPRISE_BIN");
    if (path == NULL) path = "build/reprise";
    snprintf(program, sizeof program, "%s", path);
    have_program = access(program, X_OK) == 0;
    if (!have_program) printf("skipped: there is no program at %s (REPRISE_PROGRAM)\n", program);
}

static void find_model(void) {
    const char *data = getenv("REPRISE_TEST_DATA");
    if (data != NULL) {
        snprintf(model, sizeof model, "%s/models/stories260K.gguf", data);
        snprintf(answer_file, sizeof answer_file, "%s/models/stories260K.greedy200.txt", data);
        have_model = access(model, R_OK) == 0 && access(answer_file, R_OK) == 0;
    }
    if (!have_model) printf("skipped in part: REPRISE_TEST_DATA does not lead to models/stories260K.gguf\n");
}

static int set_up(void **state) {
    (void)state;
    find_program();
    find_model();
    return mkdtemp(folder) == NULL;
}

static int tear_down(void **state) {
    (void)state;
    DIR *d = opendir(folder);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.') unlinkat(dirfd(d), e->d_name, 0);
    if (d != NULL) closedir(d);
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_use),
        cmocka_unit_test(test_wrong_values),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_llama_options),
        cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_layers_in_f16),
        cmocka_unit_test(test_reduced_kv),
        cmocka_unit_test(test_tokenize_vocabularies),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_man_pages),
        cmocka_unit_test(test_tokenize),
        cmocka_unit_test(test_greedy_story),
        cmocka_unit_test(test_run_json),
        cmocka_unit_test(test_run_stdin),
        cmocka_unit_test(test_dump_logits),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_inspect_model),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_inspect_json),
        cmocka_unit_test(test_inspect_tree),
        cmocka_unit_test(test_svg),
        cmocka_unit_test(test_sampling_is_seeded),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_grammar),
        cmocka_unit_test(test_logit_bias),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_run_tenant),
    };
    return cmocka_run_group_tests_name("cli", tests, set_up, tear_down);
}
