/* Which messages a pull by tags gets. */

#pragma once

#include "pull_run.h"

enum { BLANK_UNIT_SIZE = INT32_MAX };

static int64_t phy_offset_of(struct span units, Py_ssize_t index)
{
    return unit_phy_offset(units.at + index * CQ_UNIT_BYTES);
}

static int64_t size_of(struct span units, Py_ssize_t index)
{
    return unit_size(units.at + index * CQ_UNIT_BYTES);
}

static int is_wanted(const struct pull_target *target, int64_t tags_code)
{
    for (int i = 0; i < target->code_count; i++)
        if (target->codes[i] == tags_code)
            return 1;
    return 0;
}

/* Move the units of wanted messages to the front, as many as there is room for: their number, and how many units were
   looked at. 0 if there are none, or if one of them points to no message. */
static Py_ssize_t keep_wanted(
    const struct pull_target *target, char *units, Py_ssize_t unit_count, const struct room *room,
    Py_ssize_t *looked_at)
{
    const struct span all = {units, unit_count * CQ_UNIT_BYTES};
    Py_ssize_t i = 0, count = 0;
    int64_t total = 0;
    for (; i < unit_count && (count == 0 || count < room->messages); i++) {
        char *unit = units + i * CQ_UNIT_BYTES;
        if (!is_wanted(target, (int64_t)GET(unit, CQ_UNIT_TAGS_CODE)))
            continue;
        int32_t size = size_of(all, i);
        if (size <= 0 || size == BLANK_UNIT_SIZE)
            return 0;
        if (count && total + size > room->bytes)
            break;
        memmove(units + count * CQ_UNIT_BYTES, unit, CQ_UNIT_BYTES);
        total += size;
        count++;
    }
    *looked_at = i;
    return count;
}
