import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.rocketmq.common.message.MessageExt;

/**
 * Which messages a listener fails on: the first `fails` times (-1: always) on each whose name ends with `failing`.
 *
 * It takes `slowMs` for each call in any case.
 */
final class Verdicts {
    final Integer delayLevel;
    private final int fails;
    private final String failing;
    private final int slowMs;
    private final Map<String, AtomicInteger> failed = new ConcurrentHashMap<>();

    Verdicts(Options options) {
        fails = options.number("fails", 0);
        failing = options.text("failing", "");
        slowMs = options.number("slowMs", 0);
        delayLevel = options.text("delayLevel", null) == null ? null : options.number("delayLevel");
    }

    /** Whether the listener fails on these messages now. */
    boolean isFailure(List<MessageExt> messages) {
        pause();
        boolean isFailure = false;
        for (MessageExt message : messages) {
            isFailure |= isFailure(Described.name(message.getBody()));
        }
        return isFailure;
    }

    private boolean isFailure(String name) {
        if (fails == 0 || !name.endsWith(failing)) {
            return false;
        }
        int before = failed.computeIfAbsent(name, key -> new AtomicInteger()).getAndIncrement();
        return fails < 0 || before < fails;
    }

    private void pause() {
        if (slowMs == 0) {
            return;
        }
        try {
            Thread.sleep(slowMs);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
