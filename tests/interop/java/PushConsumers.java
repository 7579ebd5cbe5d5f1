import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers by name, and what each has received. */
final class PushConsumers {
    private final Map<String, Inbox> inboxes = new ConcurrentHashMap<>();

    /** What one consumer has received, in the order in which its listener was called. */
    private static final class Inbox {
        private final List<Object> messages = new ArrayList<>();
        private final Set<String> names = new TreeSet<>();
        private final boolean isLean;
        private DefaultMQPushConsumer consumer;

        Inbox(boolean isLean) {
            this.isLean = isLean;
        }

        synchronized void add(List<MessageExt> received) {
            for (MessageExt message : received) {
                String name = Described.name(message.getBody());
                messages.add(isLean ? name : Described.received(message));
                names.add(name);
            }
            notifyAll();
        }

        synchronized List<Object> take(int count, long timeoutMs) throws InterruptedException {
            long deadline = System.currentTimeMillis() + timeoutMs;
            for (long left = timeoutMs; names.size() < count && left > 0; left = deadline - System.currentTimeMillis()) {
                wait(left);
            }
            return new ArrayList<>(messages);
        }
    }

    Object start(Options options) throws Exception {
        // Of very many messages a lean inbox keeps the names only.
        Inbox inbox = new Inbox(options.text("lean", "false").equals("true"));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"));
        inbox.consumer = consumer;
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setInstanceName(options.text("instance", options.text("name")));
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        setModel(consumer, options.text("model", "CLUSTERING"));
        consumer.setConsumeFromWhere(
            ConsumeFromWhere.valueOf("CONSUME_FROM_" + options.text("from", "FIRST_OFFSET")));
        if (options.text("time", null) != null) {
            consumer.setConsumeTimestamp(options.text("time"));
        }
        consumer.subscribe(options.text("topic"), options.text("expression", "*"));
        listen(consumer, inbox, options.text("listener", "concurrently").equals("orderly"));
        consumer.start();
        inboxes.put(options.text("name"), inbox);
        return true;
    }

    /** MessageModel moved from one package to another between 4.9 and 5. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void setModel(DefaultMQPushConsumer consumer, String name) throws ReflectiveOperationException {
        Class model = consumer.getMessageModel().getClass();
        DefaultMQPushConsumer.class.getMethod("setMessageModel", model).invoke(consumer, Enum.valueOf(model, name));
    }

    private static void listen(DefaultMQPushConsumer consumer, Inbox inbox, boolean isOrderly) {
        if (isOrderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                inbox.add(messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                inbox.add(messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
    }

    boolean stop(String name) {
        Inbox inbox = inboxes.remove(name);
        if (inbox != null) {
            inbox.consumer.shutdown();
        }
        return inbox != null;
    }

    Object received(Options options) throws InterruptedException {
        return inboxes.get(options.text("consumer")).take(options.number("count"), options.number("timeoutMs", 30_000));
    }

    /** The queues of its topics that a consumer owns now, retry topic left out. */
    Object owned(Options options) {
        Map<String, Object> owned = new LinkedHashMap<>();
        Set<Integer> queueIds = new TreeSet<>();
        for (MessageQueue queue : inboxes.get(options.text("consumer")).consumer.getDefaultMQPushConsumerImpl()
            .getRebalanceImpl().getProcessQueueTable().keySet()) {
            if (queue.getTopic().equals(options.text("topic"))) {
                queueIds.add(queue.getQueueId());
            }
        }
        owned.put("queues", queueIds);
        return owned;
    }
}
