import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

/** Simple consumers by name, and the messages that they have received, each with a number for later commands. */
final class GrpcSimpleConsumers {
    private final Map<String, SimpleConsumer> consumers = new ConcurrentHashMap<>();
    private final Map<Integer, MessageView> views = new ConcurrentHashMap<>();
    private final AtomicInteger numbers = new AtomicInteger();

    Object start(Options options) throws ClientException {
        consumers.put(options.text("name"), GrpcSettings.PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(GrpcSettings.client(options))
            .setConsumerGroup(options.text("group"))
            .setAwaitDuration(Duration.ofMillis(options.number("awaitMs", 5000)))
            .setSubscriptionExpressions(GrpcSettings.subscription(options))
            .build());
        return true;
    }

    Object receive(Options options) throws ClientException {
        List<MessageView> came = consumers.get(options.text("consumer"))
            .receive(options.number("count", 16), Duration.ofMillis(options.number("invisibleMs", 30_000)));
        List<Object> described = new ArrayList<>();
        for (MessageView view : came) {
            int number = numbers.incrementAndGet();
            views.put(number, view);
            Map<String, Object> fields = GrpcMessages.received(view);
            fields.put("number", number);
            described.add(fields);
        }
        return described;
    }

    Object ack(Options options) throws ClientException {
        consumers.get(options.text("consumer")).ack(views.get(options.number("number")));
        return true;
    }

    Object change(Options options) throws ClientException {
        consumers.get(options.text("consumer")).changeInvisibleDuration(
            views.get(options.number("number")), Duration.ofMillis(options.number("invisibleMs")));
        return true;
    }

    boolean stop(String name) throws Exception {
        SimpleConsumer consumer = consumers.remove(name);
        if (consumer == null) {
            return false;
        }
        consumer.close();
        return true;
    }
}
