#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf/report.h"

static bool on_path(const char *program)
{
    const char *path = getenv("PATH");
    char candidate[4096];
    while (path && *path) {
        int len = (int)strcspn(path, ":");
        int n = snprintf(candidate, sizeof candidate, "%.*s/%s", len, path, program);
        if (n > 0 && (size_t)n < sizeof candidate && access(candidate, X_OK) == 0)
            return true;
        path += len + (path[len] == ':');
    }
    return false;
}

int report_can_plot(struct error *err)
{
    return on_path("gnuplot") ? 0
                              : error_set(err, HS_ERR_UNSUPPORTED, "--plot needs gnuplot, which is not on the PATH; install it");
}

static void write_value(FILE *gnuplot, double value)
{
    if (isfinite(value))
        fprintf(gnuplot, " %.9g", value);
    else
        fprintf(gnuplot, " -");
}

/* One plot has one unit: that of the most rows. */
static const char *common_unit(const struct report *report)
{
    const char *best = report->rows[0].unit;
    size_t most = 0;
    for (size_t i = 0; i < report->n_rows; i++) {
        size_t n = 0;
        for (size_t j = i; j < report->n_rows; j++)
            n += strcmp(report->rows[i].unit, report->rows[j].unit) == 0;
        if (n > most) {
            most = n;
            best = report->rows[i].unit;
        }
    }
    return best;
}

/* One line for each row of that unit: title, median, limit, peer. */
static void write_data(const struct report *report, const char *unit, FILE *gnuplot)
{
    fprintf(gnuplot, "$rows << END\n");
    for (size_t i = 0; i < report->n_rows; i++) {
        const struct report_row *row = &report->rows[i];
        if (strcmp(row->unit, unit) != 0)
            continue;
        fprintf(gnuplot, "\"%s\\n%s\"", row->name, row->metric);
        write_value(gnuplot, row->median);
        write_value(gnuplot, row->limit);
        write_value(gnuplot, row->peer_median);
        fprintf(gnuplot, "\n");
    }
    fprintf(gnuplot, "END\n");
}

static const char *peer_of(const struct report *report)
{
    for (size_t i = 0; i < report->n_rows; i++)
        if (report->rows[i].peer)
            return report->rows[i].peer;
    return NULL;
}

static bool has_limit(const struct report *report)
{
    for (size_t i = 0; i < report->n_rows; i++)
        if (isfinite(report->rows[i].limit))
            return true;
    return false;
}

/* A name inside gnuplot's single quotes. */
static void write_quoted(FILE *gnuplot, const char *text)
{
    fputc('\'', gnuplot);
    for (; *text; text++)
        fprintf(gnuplot, *text == '\'' ? "''" : "%c", *text);
    fputc('\'', gnuplot);
}

int report_plot(const struct report *report, const char *path, struct error *err)
{
    if (report->n_rows == 0)
        return error_set(err, HS_ERR_INVALID, "--plot: there is nothing to draw");
    const char *unit = common_unit(report);
    FILE *gnuplot = popen("gnuplot", "w");
    if (!gnuplot)
        return error_set(err, HS_ERR_IO, "gnuplot did not start: %s", strerror(errno));
    fprintf(gnuplot, "set terminal svg size 1000,500 dynamic\nset output ");
    write_quoted(gnuplot, path);
    fprintf(gnuplot, "\nset title 'hearsay-perf %s'\nset ylabel '%s'\n", report->bench, unit);
    fprintf(gnuplot, "set style data histogram\nset style histogram clustered gap 1\nset style fill solid 0.8\nset yrange [0:*]\n"
                     "set grid ytics\nset key outside top center horizontal\nset xtics rotate by -30\nset datafile missing '-'\n");
    write_data(report, unit, gnuplot);
    fprintf(gnuplot, "plot $rows using 2:xtic(1) title 'hearsay'");
    if (has_limit(report))
        fprintf(gnuplot, ", '' using 3 title 'limit of the machine'");
    if (peer_of(report)) {
        fprintf(gnuplot, ", '' using 4 title ");
        write_quoted(gnuplot, peer_of(report));
    }
    fprintf(gnuplot, "\n");
    int status = pclose(gnuplot);
    return status == 0 ? 0 : error_set(err, HS_ERR_IO, "gnuplot failed (status %d); can %s be written?", status, path);
}
