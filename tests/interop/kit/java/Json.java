import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;

/** JSON text of maps, lists, numbers, booleans and text. */
final class Json {
    private Json() {
    }

    static String of(Object value) {
        if (value instanceof Map) {
            List<String> members = new ArrayList<>();
            ((Map<?, ?>) value).forEach((name, member) -> members.add(quote(name.toString()) + ":" + of(member)));
            return "{" + String.join(",", members) + "}";
        }
        if (value instanceof Collection) {
            List<String> elements = new ArrayList<>();
            ((Collection<?>) value).forEach(element -> elements.add(of(element)));
            return "[" + String.join(",", elements) + "]";
        }
        return value == null || value instanceof Number || value instanceof Boolean
            ? String.valueOf(value) : quote(value.toString());
    }

    private static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
