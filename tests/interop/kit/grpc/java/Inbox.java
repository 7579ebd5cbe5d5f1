import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** Messages in the order in which they came, to wait for. */
final class Inbox {
    private final List<Object> messages = new ArrayList<>();
    private final Set<String> names = new HashSet<>();

    synchronized void add(String name, Object message) {
        messages.add(message);
        names.add(name);
        notifyAll();
    }

    /** All messages, once there are `count` of different names, or with `calls` so many of any. */
    synchronized List<Object> take(Options options) throws InterruptedException {
        boolean calls = options.text("calls", "false").equals("true");
        long deadline = System.currentTimeMillis() + options.number("timeoutMs", 30_000);
        long left = deadline - System.currentTimeMillis();
        while ((calls ? messages.size() : names.size()) < options.number("count") && left > 0) {
            wait(left);
            left = deadline - System.currentTimeMillis();
        }
        return new ArrayList<>(messages);
    }
}
