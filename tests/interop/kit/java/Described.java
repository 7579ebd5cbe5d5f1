import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.CRC32;

import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Messages as maps of their fields.
 *
 * A body is a name, and for larger ones "|" and padding; told of it are the name, the size and a checksum.
 */
final class Described {
    private Described() {
    }

    static Map<String, Object> sent(Message message, SendResult result, int number) {
        Map<String, Object> fields = body(message.getBody());
        fields.put("tags", message.getTags());
        fields.put("keys", message.getKeys());
        if (result != null) {
            fields.put("status", result.getSendStatus().name());
            fields.put("broker", result.getMessageQueue().getBrokerName());
            fields.put("queueId", result.getMessageQueue().getQueueId());
            fields.put("queueOffset", result.getQueueOffset() + number);
            fields.put("msgId", result.getMsgId().split(",")[number]);
            fields.put("offsetMsgId", result.getOffsetMsgId().split(",")[number]);
            if (Since5.recallHandle(result) != null) {
                fields.put("recallHandle", Since5.recallHandle(result));
            }
        }
        return fields;
    }

    static Map<String, Object> received(MessageExt message) {
        Map<String, Object> fields = body(message.getBody());
        fields.put("topic", message.getTopic());
        fields.put("tags", message.getTags());
        fields.put("keys", message.getKeys());
        fields.put("queueId", message.getQueueId());
        fields.put("queueOffset", message.getQueueOffset());
        fields.put("msgId", message.getMsgId());
        fields.put("offsetMsgId",
            message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId());
        fields.put("sysFlag", message.getSysFlag());
        fields.put("bornTimestamp", message.getBornTimestamp());
        fields.put("storeTimestamp", message.getStoreTimestamp());
        fields.put("bornHost", host(message.getBornHost()));
        fields.put("storeHost", host(message.getStoreHost()));
        fields.put("reconsumeTimes", message.getReconsumeTimes());
        fields.put("properties", new TreeMap<>(message.getProperties()));
        return fields;
    }

    static List<Object> received(List<MessageExt> messages) {
        List<Object> all = new ArrayList<>();
        messages.forEach(message -> all.add(received(message)));
        return all;
    }

    private static Map<String, Object> body(byte[] body) {
        CRC32 crc = new CRC32();
        crc.update(body);
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("body", name(body));
        fields.put("size", body.length);
        fields.put("crc", crc.getValue());
        return fields;
    }

    static String name(byte[] body) {
        int end = 0;
        while (end < body.length && body[end] != '|') {
            end++;
        }
        return new String(body, 0, end, StandardCharsets.UTF_8);
    }

    private static String host(SocketAddress address) {
        return ((InetSocketAddress) address).getAddress().getHostAddress();
    }
}
