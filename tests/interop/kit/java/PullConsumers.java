import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Pull and lite pull consumers by name. */
final class PullConsumers {
    private static final long TIMEOUT_MS = 15_000;
    private final Map<String, DefaultMQPullConsumer> pullers = new ConcurrentHashMap<>();
    private final Map<String, DefaultLitePullConsumer> lites = new ConcurrentHashMap<>();

    boolean stop(String name) {
        DefaultMQPullConsumer puller = pullers.remove(name);
        DefaultLitePullConsumer lite = lites.remove(name);
        if (puller != null) {
            puller.shutdown();
        }
        if (lite != null) {
            lite.shutdown();
        }
        return puller != null || lite != null;
    }

    // -- pull ---------------------------------------------------------------------------------------------------

    Object startPull(Options options) throws Exception {
        DefaultMQPullConsumer puller = new DefaultMQPullConsumer(options.text("group"), Keys.of(options));
        puller.setNamesrvAddr(options.text("namesrv"));
        puller.setInstanceName(options.text("name"));
        puller.setConsumerPullTimeoutMillis(TIMEOUT_MS);
        puller.start();
        pullers.put(options.text("name"), puller);
        return true;
    }

    Object queues(Options options) throws Exception {
        TreeSet<Integer> queueIds = new TreeSet<>();
        for (MessageQueue queue : puller(options).fetchSubscribeMessageQueues(options.text("topic"))) {
            queueIds.add(queue.getQueueId());
        }
        return queueIds;
    }

    Object pull(Options options) throws Exception {
        MessageQueue queue = queue(options);
        DefaultMQPullConsumer puller = puller(options);
        String expression = options.text("expression", "*");
        long offset = options.big("offset");
        int max = options.number("max", 32);
        long start = System.currentTimeMillis();
        PullResult result = options.text("wait", "false").equals("true")
            ? puller.pullBlockIfNotFound(queue, expression, offset, max)
            : puller.pull(queue, expression, offset, max, TIMEOUT_MS);
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("status", result.getPullStatus().name());
        fields.put("next", result.getNextBeginOffset());
        fields.put("min", result.getMinOffset());
        fields.put("max", result.getMaxOffset());
        fields.put("tookMs", System.currentTimeMillis() - start);
        List<MessageExt> found = result.getMsgFoundList();
        fields.put("messages", found == null ? new ArrayList<>() : Described.received(found));
        return fields;
    }

    /** Keep an offset at the broker, and tell what the broker has. */
    Object keep(Options options) throws Exception {
        DefaultMQPullConsumer puller = puller(options);
        MessageQueue queue = queue(options);
        puller.updateConsumeOffset(queue, options.big("offset"));
        puller.getDefaultMQPullConsumerImpl().getOffsetStore().persistAll(new HashSet<>(Set.of(queue)));
        return committed(options);
    }

    Object committed(Options options) throws Exception {
        return puller(options).fetchConsumeOffset(queue(options), true);
    }

    private DefaultMQPullConsumer puller(Options options) {
        return pullers.get(options.text("consumer"));
    }

    private static MessageQueue queue(Options options) {
        return new MessageQueue(options.text("topic"), options.text("broker"), options.number("queue"));
    }

    // -- lite pull ----------------------------------------------------------------------------------------------

    Object startLite(Options options) throws Exception {
        DefaultLitePullConsumer lite = new DefaultLitePullConsumer(options.text("group"), Keys.of(options));
        lite.setNamesrvAddr(options.text("namesrv"));
        lite.setInstanceName(options.text("name"));
        lite.setPollNameServerInterval(1000);
        lite.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + options.text("from", "FIRST_OFFSET")));
        lite.setAutoCommit(options.text("autoCommit", "true").equals("true"));
        if (options.text("assign", "false").equals("false")) {
            lite.subscribe(options.text("topic"), options.text("expression", "*"));
        }
        lite.start();
        if (options.text("assign", "false").equals("true")) {
            lite.assign(lite.fetchMessageQueues(options.text("topic")));
        }
        lites.put(options.text("name"), lite);
        return true;
    }

    /** Poll until `count` messages came or the time is over. */
    Object poll(Options options) throws Exception {
        DefaultLitePullConsumer lite = lites.get(options.text("consumer"));
        long deadline = System.currentTimeMillis() + options.number("timeoutMs", 30_000);
        List<MessageExt> received = new ArrayList<>();
        while (received.size() < options.number("count") && System.currentTimeMillis() < deadline) {
            received.addAll(lite.poll(200));
        }
        return Described.received(received);
    }

    Object seek(Options options) throws Exception {
        DefaultLitePullConsumer lite = lites.get(options.text("consumer"));
        MessageQueue queue = queue(options);
        if (options.text("time", null) != null) {
            lite.seek(queue, lite.offsetForTimestamp(queue, options.big("time")));
        } else {
            lite.seek(queue, options.big("offset"));
        }
        return true;
    }

    Object commitLite(Options options) throws Exception {
        DefaultLitePullConsumer lite = lites.get(options.text("consumer"));
        lite.commitSync();
        return lite.committed(queue(options));
    }
}
