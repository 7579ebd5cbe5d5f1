import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Apache's Java client for gRPC under remote control: producers and consumers are started, used and stopped by name.
 *
 * A line on stdin is one command, its words separated by tabs: a name, then NAME=VALUE, among them its id. Commands
 * run side by side. Each gives one JSON line on stdout, {"id":...,"answer":...} or {"id":...,"error":...,"code":...}.
 * The end of stdin ends the session.
 */
public class GrpcSession {
    private static final PrintStream ANSWERS = System.out;
    private static final GrpcProducers PRODUCERS = new GrpcProducers();
    private static final GrpcSimpleConsumers SIMPLE = new GrpcSimpleConsumers();
    private static final GrpcPushConsumers PUSH = new GrpcPushConsumers();

    public static void main(String[] args) throws Exception {
        System.setOut(System.err);
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            Options options = new Options(line);
            threads.execute(() -> answer(options));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void answer(Options options) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", options.number("id"));
        try {
            answer.put("answer", run(options));
        } catch (Throwable error) {
            error.printStackTrace();
            answer.putAll(Failure.of(error));
        }
        synchronized (ANSWERS) {
            byte[] line = (Json.of(answer) + "\n").getBytes(StandardCharsets.UTF_8);
            ANSWERS.write(line, 0, line.length);
            ANSWERS.flush();
        }
    }

    private static Object run(Options options) throws Exception {
        switch (options.command) {
            case "start-producer":
                return PRODUCERS.start(options);
            case "send":
                return PRODUCERS.send(options);
            case "send-transactions":
                return PRODUCERS.sendTransactions(options);
            case "checks":
                return PRODUCERS.checks(options);
            case "recall":
                return PRODUCERS.recall(options);
            case "start-simple":
                return SIMPLE.start(options);
            case "receive":
                return SIMPLE.receive(options);
            case "ack":
                return SIMPLE.ack(options);
            case "change":
                return SIMPLE.change(options);
            case "start-push":
                return PUSH.start(options);
            case "received":
                return PUSH.received(options);
            case "stop":
                return stop(options.text("name"));
            default:
                throw new IllegalArgumentException("unknown command " + options.command);
        }
    }

    private static boolean stop(String name) throws Exception {
        return PRODUCERS.stop(name) || SIMPLE.stop(name) || PUSH.stop(name);
    }
}
