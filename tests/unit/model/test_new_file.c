/* Files that are seen when they are whole, with and without the file system's help (O_TMPFILE, and its linkat, refused here by wrapped calls). */
#include "tests/unit/model/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/model/new_file.h"
#include "tests/unit/model/folder.h"

int __real_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, ...);
int __real_linkat(int from_folder, const char *from, int to_folder, const char *to, int flags);
int __wrap_linkat(int from_folder, const char *from, int to_folder, const char *to, int flags);

static bool refuses_nameless;
static int refuses_names; /* errno, or 0 */
static struct folder place;

int __wrap_open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (refuses_nameless && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return __real_open(path, flags, mode);
}

int __wrap_linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    errno = refuses_names;
    return refuses_names ? -1 : __real_linkat(from_folder, from, to_folder, to, flags);
}

static bool has_nameless(void)
{
    int fd = __real_open(place.path, O_TMPFILE | O_RDWR, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static uint32_t count_files(void)
{
    uint32_t n = 0;
    DIR *folder = opendir(place.path);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        n += entry->d_name[0] != '.';
    closedir(folder);
    return n;
}

static void expect_content(const char *path, const char *text)
{
    char content[64] = "";
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    content[fread(content, 1, sizeof content - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(content, text);
}

static void write_new(const char *path, const char *text, struct new_file *file)
{
    struct error err = {0};
    assert_int_equal(new_file_open(path, file, &err), 0);
    assert_int_equal(write(file->fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void commit(struct new_file *file)
{
    struct error err = {0};
    if (new_file_commit(file, &err) != 0)
        fail_msg("%s", err.text);
}

/* A first file, one that replaces it, one that is given up, and one whose writer is killed. */
static void one_life(const char *name)
{
    struct new_file file;
    struct stat status;
    char path[2 * FOLDER_PATH];
    snprintf(path, sizeof path, "%s", folder_file(&place, name));
    const mode_t mask = umask(0);
    umask(mask);

    write_new(path, "first", &file);
    assert_int_equal(access(path, F_OK), -1);
    commit(&file);
    expect_content(path, "first");
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0666 & ~mask);

    write_new(path, "second", &file);
    expect_content(path, "first");
    commit(&file);
    expect_content(path, "second");

    write_new(path, "third", &file);
    new_file_discard(&file);
    expect_content(path, "second");
    assert_int_equal(count_files(), 1);

    pid_t child = fork();
    if (child == 0) {
        write_new(path, "killed", &file);
        raise(SIGKILL);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL);
    expect_content(path, "second");
    folder_delete(&place, name);
}

static void test_nameless(void **state)
{
    if (!has_nameless())
        skip();
    one_life("a");
    assert_int_equal(count_files(), 0);
}

/* What a killed run left there is in nobody's way, were it of the same PID. */
static void test_named(void **state)
{
    char left[64];
    refuses_nameless = true;
    one_life("b");
    assert_int_equal(count_files(), 1);

    struct new_file file;
    char path[2 * FOLDER_PATH];
    snprintf(path, sizeof path, "%s", folder_file(&place, "c"));
    snprintf(left, sizeof left, "c.part.%d.0", (int)getpid());
    folder_write_text(&place, left, "left");
    write_new(path, "new", &file);
    commit(&file);
    expect_content(path, "new");
    expect_content(folder_file(&place, left), "left");
}

/* Nameless files that can never have a name are not begun: no /proc, no such call here, forbidden. */
static void test_names_refused(void **state)
{
    const int reasons[] = {ENOENT, EOPNOTSUPP, EPERM};
    for (uint32_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        refuses_names = reasons[i];
        one_life("f");
        assert_int_equal(count_files(), 1); /* what the killed one left */
        folder_remove(&place);
        folder_create(&place);
    }
}

/* The same while a nameless file takes a name to replace an earlier one. */
static void test_names_taken(void **state)
{
    char left[64], path[2 * FOLDER_PATH];
    struct new_file file;
    snprintf(path, sizeof path, "%s", folder_file(&place, "d"));
    snprintf(left, sizeof left, "d.part.%d.0", (int)getpid());
    folder_write_text(&place, "d", "earlier");
    folder_write_text(&place, left, "left");
    write_new(path, "later", &file);
    commit(&file);
    expect_content(path, "later");
    expect_content(folder_file(&place, left), "left");
    assert_int_equal(count_files(), 2);
}

static void test_refused(void **state)
{
    struct new_file file;
    struct error err = {0};
    for (int named = 0; named < 2; named++) {
        refuses_nameless = named;
        assert_int_equal(new_file_open("/nonexistent/folder/file", &file, &err), HS_ERR_IO);
        assert_text_contains(err.text, "/nonexistent/folder/file");
        assert_text_contains(err.text, "No such file");
        char path[2 * FOLDER_PATH];
        snprintf(path, sizeof path, "%s", folder_file(&place, "e"));
        write_new(path, "text", &file);
        assert_int_equal(mkdir(path, 0700), 0); /* in its place now */
        assert_int_equal(new_file_commit(&file, &err), HS_ERR_IO);
        assert_text_contains(err.text, "directory");
        assert_int_equal(rmdir(path), 0);
        assert_int_equal(count_files(), 0);
    }
}

static int set_up(void **state)
{
    refuses_nameless = false;
    refuses_names = 0;
    folder_create(&place);
    return 0;
}

static int tear_down(void **state)
{
    folder_remove(&place);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nameless, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
