/* Records of a file of the log, read where units of a queue point to. */

#pragma once

#include "bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum {
    MAX_GAP_BYTES = 8 * 1024,            /* records closer together than this are read in one go */
    MAX_READ_BYTES = 256 * 1024,         /* of one read; a larger record is read alone */
    MAX_LONE_BYTES = 16 * 1024 * 1024,   /* a larger record is left to Python */
    DENSE = 16                           /* up to so many bytes of the file for each one that is wanted */
};

struct log_part {
    int fd;
    int64_t start, end;
};

/* Read so many bytes at a phy_offset; false if there are fewer, or they cannot be read. */
static int read_log(const struct log_part *log, char *target, int64_t size, int64_t phy_offset)
{
    while (size > 0) {
        ssize_t got = pread(log->fd, target, (size_t)size, (off_t)(phy_offset - log->start));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        target += got;
        size -= got;
        phy_offset += got;
    }
    return 1;
}

/* The number of units whose records are read together, and where the last of those ends; 0 if the first lies
   outside of the part. */
static Py_ssize_t records_together(
    const struct log_part *log, const unsigned char *unit, Py_ssize_t count, int64_t *high)
{
    int64_t low = (int64_t)GET(unit, CQ_UNIT_PHY_OFFSET);
    Py_ssize_t together = 0;
    for (; together < count; together++, unit += CQ_UNIT_BYTES) {
        int64_t at = (int64_t)GET(unit, CQ_UNIT_PHY_OFFSET), size = (int32_t)GET(unit, CQ_UNIT_SIZE);
        if (at < log->start || size <= RECORD_BYTES || at > log->end - size)
            break;
        if (together && (at < *high || at - *high > MAX_GAP_BYTES || at + size - low > MAX_READ_BYTES))
            break;
        *high = at + size;
    }
    return together;
}

/* Have the system fetch the records of these units, and `ahead` bytes behind them, if they lie close together. */
static void fetch_ahead(const struct log_part *log, const unsigned char *unit, Py_ssize_t count, int64_t ahead)
{
    const unsigned char *last = unit + (count - 1) * CQ_UNIT_BYTES;
    int64_t low = (int64_t)GET(unit, CQ_UNIT_PHY_OFFSET), high = (int64_t)GET(last, CQ_UNIT_PHY_OFFSET), wanted = 0;
    for (; unit <= last; unit += CQ_UNIT_BYTES)
        wanted += (int32_t)GET(unit, CQ_UNIT_SIZE);
#ifdef POSIX_FADV_WILLNEED
    if (low >= log->start && high >= low && high < log->end && (high - low) / DENSE < wanted)
        (void)posix_fadvise(log->fd, (off_t)(low - log->start), (off_t)(high - low + ahead), POSIX_FADV_WILLNEED);
#endif
}
