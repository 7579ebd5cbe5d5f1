/* Which messages a pull by tags gets. */

#pragma once

#include "pull_run.h"

enum { BLANK_UNIT_SIZE = INT32_MAX };

static int64_t phy_offset_of(struct span units, Py_ssize_t index)
{
    return (int64_t)GET(units.at + index * CQ_UNIT_BYTES, CQ_UNIT_PHY_OFFSET);
}

static int32_t size_of(struct span units, Py_ssize_t index)
{
    return (int32_t)GET(units.at + index * CQ_UNIT_BYTES, CQ_UNIT_SIZE);
}

static int is_wanted(const struct pull_target *target, int64_t tags_code)
{
    for (int i = 0; i < target->code_count; i++)
        if (target->codes[i] == tags_code)
            return 1;
    return 0;
}

/* The units of wanted messages, as many as there is room for, and how many units were looked at. Empty if there are
   none, or if one of them points to no message; NULL with an error set. */
static PyObject *wanted_units(
    struct pull_run *run, struct span units, const struct room *room, Py_ssize_t *looked_at)
{
    Py_ssize_t i = 0, count = 0;
    int64_t total = 0;
    run->wanted.size = 0;
    for (; i < units.size / CQ_UNIT_BYTES && (count == 0 || count < room->messages); i++) {
        const char *unit = units.at + i * CQ_UNIT_BYTES;
        if (!is_wanted(&run->target, (int64_t)GET(unit, CQ_UNIT_TAGS_CODE)))
            continue;
        int32_t size = size_of(units, i);
        if (size <= 0 || size == BLANK_UNIT_SIZE) {
            run->wanted.size = 0;
            break;
        }
        if (count && total + size > room->bytes)
            break;
        char *out = reserve(&run->wanted, CQ_UNIT_BYTES);
        if (out == NULL)
            return NULL;
        put_span(out, (struct span){unit, CQ_UNIT_BYTES});
        total += size;
        count++;
    }
    *looked_at = i;
    return bytes_of(&run->wanted);
}
