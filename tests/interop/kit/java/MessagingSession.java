import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Apache's Java client under remote control: producers and consumers are started, used and stopped by name.
 *
 * A line on stdin is one command, its words separated by tabs: a name, then NAME=VALUE. Each gives one JSON line on
 * stdout, {"answer":...} or {"error":...}. The end of stdin ends the session.
 */
public class MessagingSession {
    private static final PrintStream ANSWERS = System.out;
    private static final Producers PRODUCERS = new Producers();
    private static final PushConsumers PUSH = new PushConsumers();
    private static final PullConsumers PULL = new PullConsumers();
    private static final Transactions TRANSACTIONS = new Transactions();
    private static final RequestReply REPLIES = new RequestReply();

    public static void main(String[] args) throws Exception {
        System.setOut(System.err);
        // A consumer that misses its first rebalance, on a busy machine, would wait 20 s for the next; the same
        // holds for a queue that another consumer has not unlocked yet.
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
        System.setProperty("rocketmq.client.rebalance.lockInterval", "1000");
        ShutdownHurry.watch(Thread.currentThread());
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("answer", run(new Options(line)));
            } catch (Throwable error) {
                error.printStackTrace();
                answer.put("error", error.toString());
            }
            ANSWERS.write((Json.of(answer) + "\n").getBytes(StandardCharsets.UTF_8));
            ANSWERS.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static Object run(Options options) throws Exception {
        switch (options.command) {
            case "start-producer":
                return PRODUCERS.start(options);
            case "start-consumer":
                return PUSH.start(options);
            case "start-pull":
                return PULL.startPull(options);
            case "start-lite":
                return PULL.startLite(options);
            case "start-transactions":
                return TRANSACTIONS.start(options);
            case "start-responder":
                return REPLIES.start(options);
            case "stop":
                return stop(options.text("name"));
            default:
                return use(options);
        }
    }

    private static boolean stop(String name) {
        return PRODUCERS.stop(name) || PUSH.stop(name) || PULL.stop(name) || TRANSACTIONS.stop(name)
            || REPLIES.stop(name);
    }

    private static Object use(Options options) throws Exception {
        switch (options.command) {
            case "send":
                return PRODUCERS.send(options);
            case "recall":
                return PRODUCERS.recall(options);
            case "send-transactions":
                return TRANSACTIONS.send(options);
            case "send-marked":
                return TRANSACTIONS.sendMarked(options);
            case "checks":
                return TRANSACTIONS.checks(options);
            case "request":
                return REPLIES.request(PRODUCERS.get(options), options);
            case "replies":
                return REPLIES.replies(options);
            case "query":
                return PRODUCERS.query(options);
            case "view":
                return PRODUCERS.view(options);
            case "offsets":
                return PRODUCERS.offsets(options);
            case "start-load":
                return PRODUCERS.startLoad(options);
            case "acknowledged":
                return PRODUCERS.acknowledged(options);
            case "stop-load":
                return PRODUCERS.stopLoad(options);
            case "received":
                return PUSH.received(options);
            case "owned":
                return PUSH.owned(options);
            default:
                return pull(options);
        }
    }

    private static Object pull(Options options) throws Exception {
        switch (options.command) {
            case "queues":
                return PULL.queues(options);
            case "pull":
                return PULL.pull(options);
            case "keep":
                return PULL.keep(options);
            case "committed":
                return PULL.committed(options);
            case "poll":
                return PULL.poll(options);
            case "seek":
                return PULL.seek(options);
            case "commit-lite":
                return PULL.commitLite(options);
            default:
                throw new IllegalArgumentException("unknown command " + options.command);
        }
    }
}
