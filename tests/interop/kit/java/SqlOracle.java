import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;

import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * Apache's evaluator of SQL92 filters under remote control.
 *
 * A line on stdin: the expression, and then each set of properties as pairs of name and value. Sets are separated by
 * tabs, names and values by commas, and each text is in Base64. The answer is one line with one word per set: true,
 * false, null, error, or syntax when there is no such expression. The end of stdin ends the session.
 */
public class SqlOracle {
    private static final PrintStream ANSWERS = System.out;

    public static void main(String[] args) throws Exception {
        System.setOut(System.err);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] words = line.split("\t", -1);
            Expression expression = parse(text(words[0]));
            String[] results = new String[words.length - 1];
            for (int number = 0; number < results.length; number++) {
                results[number] = expression == null ? "syntax" : evaluate(expression, properties(words[number + 1]));
            }
            ANSWERS.println(String.join(" ", results));
            ANSWERS.flush();
        }
    }

    private static Expression parse(String expression) {
        try {
            return SelectorParser.parse(expression);
        } catch (Exception | Error error) {
            // The lexer throws errors, the parser exceptions.
            return null;
        }
    }

    private static String evaluate(Expression expression, Map<String, Object> properties) {
        Object result;
        try {
            result = expression.evaluate(new Context(properties));
        } catch (Exception error) {
            return "error";
        }
        return result == null || result instanceof Boolean ? String.valueOf(result) : result.getClass().getName();
    }

    private static Map<String, Object> properties(String words) {
        Map<String, Object> properties = new HashMap<>();
        if (!words.isEmpty()) {
            String[] texts = words.split(",", -1);
            for (int number = 0; number < texts.length; number += 2) {
                properties.put(text(texts[number]), text(texts[number + 1]));
            }
        }
        return properties;
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }

    /** The properties of one message. */
    private static final class Context implements EvaluationContext {
        private final Map<String, Object> properties;

        Context(Map<String, Object> properties) {
            this.properties = properties;
        }

        @Override
        public Object get(String name) {
            return properties.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return properties;
        }
    }
}
