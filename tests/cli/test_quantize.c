/* SPDX-License-Identifier: Apache-2.0 */
/* test_quantize.c: `reprise quantize` from the command line. tests/engine/test_quantize_model.c tests the written
 * files.
 *
 * Runs the program at REPRISE_PROGRAM (ctest sets it), else build/reprise; reported as skipped without it.
 */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "base/file.h"
#include "reprise.h"
#include "support/tiny_model.h"

#define PATH_BYTES 128

static const char *program;
static char folder[] = "/tmp/reprise-cli-quantize-XXXXXX", in[PATH_BYTES], out[PATH_BYTES], words[2][PATH_BYTES];

/* Streams 1 and 2 of the last run. */
static base_buffer said[2];

static int run(const char *a, const char *b, const char *c, const char *d) {
    const char *const arguments[] = {program, "quantize", a, b, c, d, NULL};
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen(words[0], "wb", stdout) || !freopen(words[1], "wb", stderr)) _exit(99);
        execv(program, (char *const *)arguments);
        _exit(98);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    for (int i = 0; i < 2; i++) {
        base_buffer_free(&said[i]);
        assert_int_equal(base_file_read(words[i], 1 << 20, &said[i], NULL), 0);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect(int got, int status, int stream, const char *says) {
    const char *text = said[stream - 1].data ? said[stream - 1].data : "";
    if (got != status || !strstr(text, says))
        fail_msg("status %d, expected %d; '%s' not in: %s", got, status, says, text);
}

static int set_up(void **state) {
    (void)state;
    program = getenv("REPRISE_PROGRAM");
    if (!program) program = "build/reprise";
    if (access(program, X_OK)) program = NULL;
    if (!program) printf("skipped: there is no program (REPRISE_PROGRAM)\n");
    if (!mkdtemp(folder)) return -1;
    snprintf(in, sizeof in, "%s/in.gguf", folder);
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    for (int i = 0; i < 2; i++) snprintf(words[i], sizeof words[i], "%s/stream%d", folder, i + 1);
    tiny_model_shape shape = tiny_model_defaults();
    shape.weight_type = shape.embd_type = KERNEL_F16; /* rows of 64 and 128 */
    return tiny_model_write(in, &shape, NULL);
}

static int tear_down(void **state) {
    (void)state;
    remove(in);
    remove(out);
    for (int i = 0; i < 2; i++) {
        remove(words[i]);
        base_buffer_free(&said[i]);
    }
    return rmdir(folder); /* fails if anything else is left */
}

static void it_writes_a_model(void **state) {
    (void)state;
    if (!program) skip();
    expect(run(in, out, "Q8_0", NULL), 0, 2, "Q8_0: ");
    assert_int_equal(said[0].len, 0);
    rp_model *m;
    rp_model_info info = {.struct_size = sizeof(info)};
    assert_int_equal(rp_model_open(&m, out, NULL, NULL), 0);
    rp_model_describe(m, &info);
    assert_string_equal(info.weights, "Q8_0");
    rp_model_close(m);
    expect(run("--threads=2", in, out, "q4_0"), 0, 2, "Q4_0: ");
}

static void fallbacks_are_noted(void **state) {
    (void)state;
    if (!program) skip();
    expect(run(in, out, "Q4_K", NULL), 0, 2,
           "reprise: note: 16 of 21 tensors are Q5_0: their rows are not whole blocks of Q4_K");
}

static void wrong_use_is_said(void **state) {
    (void)state;
    if (!program) skip();
    expect(run(NULL, NULL, NULL, NULL), 2, 2, "needs IN: give reprise quantize IN OUT TYPE");
    expect(run(in, NULL, NULL, NULL), 2, 2, "needs OUT");
    expect(run(in, out, NULL, NULL), 2, 2, "needs TYPE");
    expect(run(in, out, "Q8_0", "more"), 2, 2, "unexpected argument 'more'");
    expect(run(in, out, "Q9_0", NULL), 2, 2, "cannot quantize to 'Q9_0'");
    expect(run("--in", in, out, "Q8_0"), 2, 2, "unknown option '--in'");
    expect(run("/nowhere/a.gguf", out, "Q8_0", NULL), 1, 2, "/nowhere/a.gguf");
    expect(run(in, in, "Q8_0", NULL), 1, 2, "would overwrite the model itself");
}

static void help_names_the_arguments(void **state) {
    (void)state;
    if (!program) skip();
    expect(run("--help", NULL, NULL, NULL), 0, 1, "usage: reprise quantize IN OUT TYPE");
    expect(run("--help", NULL, NULL, NULL), 0, 1, "\narguments:\n  IN ");
    expect(run("--help", NULL, NULL, NULL), 0, 1, "\noptions:\n  -t, --threads N");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_writes_a_model),
        cmocka_unit_test(fallbacks_are_noted),
        cmocka_unit_test(wrong_use_is_said),
        cmocka_unit_test(help_names_the_arguments),
    };
    return cmocka_run_group_tests_name("quantize", tests, set_up, tear_down);
}
