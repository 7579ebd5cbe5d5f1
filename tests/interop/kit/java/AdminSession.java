import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;

import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs many mqadmin commands in one JVM, since a start costs seconds of CPU.
 *
 * A line on stdin is one command: its arguments in Base64, separated by blanks. Each gives one line on stdout:
 * "done" or "exit", then what the command wrote to stdout and to stderr, in Base64. "exit" means that the command
 * ended the JVM; its status is that of the process. The end of stdin ends the session.
 */
public class AdminSession {
    private static final PrintStream ANSWERS = System.out;
    private static ByteArrayOutputStream out = new ByteArrayOutputStream();
    private static ByteArrayOutputStream err = new ByteArrayOutputStream();
    private static volatile boolean running;

    public static void main(String[] args) throws Exception {
        Runtime.getRuntime().addShutdownHook(new Thread(AdminSession::answerExit));
        ShutdownHurry.watch(Thread.currentThread());
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            run(line.isEmpty() ? new String[0] : decode(line.split(" ")));
        }
        // Threads that a command left behind must not keep the session alive.
        Runtime.getRuntime().halt(0);
    }

    private static void run(String[] command) throws Exception {
        out = new ByteArrayOutputStream();
        err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true, "UTF-8"));
        System.setErr(new PrintStream(err, true, "UTF-8"));
        forgetLastCommand();
        running = true;
        try {
            MQAdminStartup.main0(command, null);
        } catch (Throwable error) {
            error.printStackTrace();
        }
        running = false;
        answer("done");
    }

    /** -n is remembered in a system property, and every run registers all commands again. */
    private static void forgetLastCommand() throws IllegalAccessException {
        System.clearProperty("rocketmq.namesrv.addr");
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) && Collection.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((Collection<?>) field.get(null)).clear();
            }
        }
    }

    private static void answerExit() {
        if (running) {
            answer("exit");
        }
    }

    private static synchronized void answer(String word) {
        System.out.flush();
        System.err.flush();
        ANSWERS.println(word + " " + encode(out) + " " + encode(err));
        ANSWERS.flush();
    }

    private static String encode(ByteArrayOutputStream text) {
        // A dot stands for nothing: an empty field would be lost between two blanks.
        return text.size() == 0 ? "." : Base64.getEncoder().encodeToString(text.toByteArray());
    }

    private static String[] decode(String[] words) {
        return Arrays.stream(words)
            .map(word -> new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8))
            .toArray(String[]::new);
    }
}
