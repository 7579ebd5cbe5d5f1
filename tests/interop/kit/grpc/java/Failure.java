import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** What a call ended with: the kind of the error, and the code of the response, 0 where the client itself refused. */
final class Failure {
    // The client keeps the code in the text only.
    private static final Pattern CODE = Pattern.compile("response-code=(\\d+)");

    private Failure() {
    }

    static Map<String, Object> of(Throwable error) {
        Matcher found = CODE.matcher(String.valueOf(error.getMessage()));
        Map<String, Object> failure = new LinkedHashMap<>();
        failure.put("error", error.toString());
        failure.put("code", found.find() ? Integer.parseInt(found.group(1)) : 0);
        return failure;
    }
}
