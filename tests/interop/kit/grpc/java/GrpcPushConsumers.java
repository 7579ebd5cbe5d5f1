import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;

/**
 * Push consumers by name, and what each has received.
 *
 * A listener fails the first `fails` times (-1: always) on each message whose name ends with `failing`.
 */
final class GrpcPushConsumers {
    private final Map<String, PushConsumer> consumers = new ConcurrentHashMap<>();
    private final Map<String, Inbox> inboxes = new ConcurrentHashMap<>();

    Object start(Options options) throws ClientException {
        Inbox inbox = new Inbox();
        inboxes.put(options.text("name"), inbox);
        Map<String, AtomicInteger> calls = new ConcurrentHashMap<>();
        int fails = options.number("fails", 0);
        String failing = options.text("failing", "");
        consumers.put(options.text("name"), GrpcSettings.PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(GrpcSettings.client(options))
            .setConsumerGroup(options.text("group"))
            .setSubscriptionExpressions(GrpcSettings.subscription(options))
            .setMessageListener(view -> {
                String name = GrpcMessages.name(view.getBody());
                int before = calls.computeIfAbsent(name, key -> new AtomicInteger()).getAndIncrement();
                inbox.add(name, GrpcMessages.received(view));
                boolean isFailure = fails != 0 && name.endsWith(failing) && (fails < 0 || before < fails);
                return isFailure ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            })
            .build());
        return true;
    }

    Object received(Options options) throws InterruptedException {
        return inboxes.get(options.text("consumer")).take(options);
    }

    /** Its inbox stays: a consumer goes on while it stops. */
    boolean stop(String name) throws Exception {
        PushConsumer consumer = consumers.remove(name);
        if (consumer == null) {
            return false;
        }
        consumer.close();
        return true;
    }
}
