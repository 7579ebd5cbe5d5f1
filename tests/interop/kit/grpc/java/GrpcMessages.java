import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.zip.CRC32;

import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;

/**
 * Messages from the options of a command, and received ones as maps of their fields.
 *
 * A body is a name, and for larger ones "|" and padding; told of it are the name, the size and a checksum.
 */
final class GrpcMessages {
    private GrpcMessages() {
    }

    static Message message(Options options, String name) {
        MessageBuilder builder = GrpcSettings.PROVIDER.newMessageBuilder()
            .setTopic(options.text("topic")).setBody(body(name, options.number("size", 0)));
        if (options.text("tag", null) != null) {
            builder.setTag(options.text("tag"));
        }
        if (options.text("keys", null) != null) {
            builder.setKeys(options.text("keys").split(","));
        }
        if (options.text("group", null) != null) {
            builder.setMessageGroup(options.text("group"));
        }
        if (options.text("delayMs", null) != null) {
            builder.setDeliveryTimestamp(System.currentTimeMillis() + options.big("delayMs"));
        }
        if (options.text("priority", null) != null) {
            builder.setPriority(options.number("priority"));
        }
        for (String property : options.text("properties", "").split(";")) {
            if (!property.isEmpty()) {
                builder.addProperty(property.split("=", 2)[0], property.split("=", 2)[1]);
            }
        }
        return builder.build();
    }

    private static byte[] body(String name, int size) {
        StringBuilder text = new StringBuilder(name);
        if (size > 0) {
            text.append('|');
            for (int left = size - name.length() - 1; left > 0; left--) {
                text.append('x');
            }
        }
        return text.toString().getBytes(StandardCharsets.UTF_8);
    }

    static String name(ByteBuffer body) {
        String text = StandardCharsets.UTF_8.decode(body.duplicate()).toString();
        return text.contains("|") ? text.substring(0, text.indexOf('|')) : text;
    }

    static Map<String, Object> received(MessageView view) {
        CRC32 crc = new CRC32();
        crc.update(view.getBody().duplicate());
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("body", name(view.getBody()));
        fields.put("size", view.getBody().remaining());
        fields.put("crc", crc.getValue());
        fields.put("topic", view.getTopic());
        fields.put("messageId", view.getMessageId().toString());
        fields.put("tag", view.getTag().orElse(null));
        fields.put("keys", new TreeSet<>(view.getKeys()));
        fields.put("group", view.getMessageGroup().orElse(null));
        fields.put("deliveryTimestamp", view.getDeliveryTimestamp().orElse(null));
        fields.put("priority", view.getPriority().orElse(null));
        fields.put("properties", new TreeMap<>(view.getProperties()));
        fields.put("bornHost", view.getBornHost());
        fields.put("bornTimestamp", view.getBornTimestamp());
        fields.put("attempt", view.getDeliveryAttempt());
        fields.put("receivedMs", System.currentTimeMillis());
        return fields;
    }
}
