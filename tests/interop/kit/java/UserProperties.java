import org.apache.rocketmq.common.message.Message;

/** Properties that a command gives to its messages: NAME:VALUE,VALUE,...;NAME:..., each message the next value. */
final class UserProperties {
    private UserProperties() {
    }

    /** Put what the message of this number has; where its value is empty, it has no such property. */
    static void put(Message message, Options options, int number) {
        for (String property : options.text("properties", "").split(";")) {
            int end = property.indexOf(':');
            String[] values = property.substring(end + 1).split(",", -1);
            String value = values[number % values.length];
            if (end > 0 && !value.isEmpty()) {
                message.putUserProperty(property.substring(0, end), value);
            }
        }
    }
}
