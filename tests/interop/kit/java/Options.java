import java.util.HashMap;
import java.util.Map;

/** The words of a command: its name, then NAME=VALUE. */
final class Options {
    final String command;
    private final Map<String, String> values = new HashMap<>();

    Options(String line) {
        String[] words = line.split("\t", -1);
        command = words[0];
        for (int number = 1; number < words.length; number++) {
            int end = words[number].indexOf('=');
            values.put(words[number].substring(0, end), words[number].substring(end + 1));
        }
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException(command + " needs " + name);
        }
        return value;
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    int number(String name) {
        return Integer.parseInt(text(name));
    }

    int number(String name, int otherwise) {
        return Integer.parseInt(text(name, String.valueOf(otherwise)));
    }

    long big(String name) {
        return Long.parseLong(text(name));
    }
}
