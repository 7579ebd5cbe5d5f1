import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.consumer.RebalanceImpl;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers by name, and what each has received. */
final class PushConsumers {
    private final Map<String, Inbox> inboxes = new ConcurrentHashMap<>();

    /** Numbers the calls of all listeners, so that those of two consumers can be put in order. */
    private static final AtomicLong TURNS = new AtomicLong();

    /** What one consumer has received, in the order in which its listener was called. */
    private static final class Inbox {
        private final List<Object> messages = new ArrayList<>();
        private final Set<String> names = new TreeSet<>();
        private final boolean isLean;
        private DefaultMQPushConsumer consumer;

        Inbox(boolean isLean) {
            this.isLean = isLean;
        }

        synchronized void add(List<MessageExt> received, MessageQueue queue) {
            for (MessageExt message : received) {
                String name = Described.name(message.getBody());
                messages.add(isLean ? name : described(message, queue));
                names.add(name);
            }
            notifyAll();
        }

        private static Object described(MessageExt message, MessageQueue queue) {
            Map<String, Object> fields = Described.received(message);
            fields.put("broker", queue.getBrokerName());
            fields.put("receivedMs", System.currentTimeMillis());
            fields.put("turn", TURNS.getAndIncrement());
            return fields;
        }

        /** All messages, once there are `count` of different names, or with `calls` so many of any. */
        synchronized List<Object> take(int count, boolean calls, long timeoutMs) throws InterruptedException {
            long deadline = System.currentTimeMillis() + timeoutMs;
            long left = timeoutMs;
            while ((calls ? messages.size() : names.size()) < count && left > 0) {
                wait(left);
                left = deadline - System.currentTimeMillis();
            }
            return new ArrayList<>(messages);
        }
    }

    Object start(Options options) throws Exception {
        // Of very many messages a lean inbox keeps the names only.
        Inbox inbox = new Inbox(options.text("lean", "false").equals("true"));
        boolean hasTrace = options.text("trace", "false").equals("true");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"), Keys.of(options),
            Strategies.of(options.text("strategy", "AVG")), hasTrace, null);
        inbox.consumer = consumer;
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setInstanceName(options.text("instance", options.text("name")));
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.setConsumeThreadMin(options.number("threads", 4));
        consumer.setConsumeThreadMax(options.number("threads", 4));
        setModel(consumer, options.text("model", "CLUSTERING"));
        consumer.setConsumeFromWhere(
            ConsumeFromWhere.valueOf("CONSUME_FROM_" + options.text("from", "FIRST_OFFSET")));
        if (options.text("time", null) != null) {
            consumer.setConsumeTimestamp(options.text("time"));
        }
        // How much of a queue it holds at most, and how much more it pulls at once.
        consumer.setPullThresholdForQueue(options.number("threshold", 1000));
        consumer.setPullBatchSize(options.number("pullBatch", 32));
        consumer.setMaxReconsumeTimes(options.number("maxTimes", -1));
        consumer.setSuspendCurrentQueueTimeMillis(options.number("suspendMs", 1000));
        if (options.text("assigned", "false").equals("true")) {
            Since5.letBrokerAssignQueues(consumer);
        }
        subscribe(consumer, options);
        listen(consumer, inbox, new Verdicts(options), options.text("listener", "concurrently").equals("orderly"));
        try {
            consumer.start();
        } catch (MQClientException error) {
            // One whose subscription is refused would go on in the background.
            consumer.shutdown();
            throw error;
        }
        inboxes.put(options.text("name"), inbox);
        return true;
    }

    /** MessageModel moved from one package to another between 4.9 and 5. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void setModel(DefaultMQPushConsumer consumer, String name) throws ReflectiveOperationException {
        Class model = consumer.getMessageModel().getClass();
        DefaultMQPushConsumer.class.getMethod("setMessageModel", model).invoke(consumer, Enum.valueOf(model, name));
    }

    @SuppressWarnings("deprecation")
    private static void subscribe(DefaultMQPushConsumer consumer, Options options) throws Exception {
        String filterClass = options.text("filterClass", null);
        if (filterClass != null) {
            consumer.subscribe(options.text("topic"), filterClass, "class " + filterClass + " { }");
        } else if (options.text("sql", null) != null) {
            consumer.subscribe(options.text("topic"), MessageSelector.bySql(options.text("sql")));
        } else {
            consumer.subscribe(options.text("topic"), options.text("expression", "*"));
        }
    }

    /** Noted last: whoever sees the message in the inbox may stop the consumer, which then has consumed it. */
    private static void listen(DefaultMQPushConsumer consumer, Inbox inbox, Verdicts verdicts, boolean isOrderly) {
        if (isOrderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                boolean isFailure = verdicts.isFailure(messages);
                inbox.add(messages, context.getMessageQueue());
                return isFailure
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                boolean isFailure = verdicts.isFailure(messages);
                if (verdicts.delayLevel != null) {
                    context.setDelayLevelWhenNextConsume(verdicts.delayLevel);
                }
                inbox.add(messages, context.getMessageQueue());
                return isFailure
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
    }

    /** Its inbox stays: a consumer goes on while it stops. */
    boolean stop(String name) {
        Inbox inbox = inboxes.get(name);
        if (inbox == null || inbox.consumer == null) {
            return false;
        }
        inbox.consumer.shutdown();
        inbox.consumer = null;
        return true;
    }

    Object received(Options options) throws InterruptedException {
        return inboxes.get(options.text("consumer")).take(
            options.number("count"), options.text("calls", "false").equals("true"),
            options.number("timeoutMs", 30_000));
    }

    /** The queues of its topics that a consumer owns now, retry topic left out: those that it pulls, and those
     * that it pops from. */
    Object owned(Options options) throws ReflectiveOperationException {
        RebalanceImpl rebalance = inboxes.get(options.text("consumer")).consumer.getDefaultMQPushConsumerImpl()
            .getRebalanceImpl();
        Map<String, Object> owned = new LinkedHashMap<>();
        owned.put("queues", queueIds(rebalance.getProcessQueueTable().keySet(), options.text("topic")));
        owned.put("popped", queueIds(Since5.poppedQueues(rebalance), options.text("topic")));
        return owned;
    }

    private static Set<Integer> queueIds(Set<MessageQueue> queues, String topic) {
        Set<Integer> queueIds = new TreeSet<>();
        for (MessageQueue queue : queues) {
            if (queue.getTopic().equals(topic)) {
                queueIds.add(queue.getQueueId());
            }
        }
        return queueIds;
    }
}
