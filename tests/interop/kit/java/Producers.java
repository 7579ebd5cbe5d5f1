import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers by name, and what else is asked through one: queries, offsets, a load that runs in the background. */
final class Producers {
    private static final int TIMEOUT_MS = 10_000;
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, Load> loads = new ConcurrentHashMap<>();

    Object start(Options options) throws Exception {
        boolean hasTrace = options.text("trace", "false").equals("true");
        DefaultMQProducer producer = new DefaultMQProducer(options.text("group"), Keys.of(options), hasTrace, null);
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setInstanceName(options.text("name"));
        producer.setPollNameServerInterval(1000);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setSendMsgTimeout(options.number("timeoutMs", TIMEOUT_MS));
        producer.setRetryTimesWhenSendFailed(options.number("retries", 2));
        producer.setCompressMsgBodyOverHowmuch(options.number("compressOver", 4096));
        producer.start();
        producers.put(options.text("name"), producer);
        return true;
    }

    boolean stop(String name) {
        DefaultMQProducer producer = producers.remove(name);
        if (producer != null) {
            producer.shutdown();
        }
        return producer != null;
    }

    DefaultMQProducer get(Options options) {
        return producers.get(options.text("producer"));
    }

    // -- sending ------------------------------------------------------------------------------------------------

    Object send(Options options) throws Exception {
        DefaultMQProducer producer = get(options);
        List<Message> messages = new ArrayList<>();
        int first = options.number("first", 0);
        for (int number = 0; number < options.number("count"); number++) {
            messages.add(newMessage(options, first + number));
        }
        switch (options.text("mode")) {
            case "async":
                return sendAsync(producer, messages);
            case "batch":
                return describe(messages, Collections.nCopies(messages.size(), producer.send(messages)), true);
            default:
                List<SendResult> results = new ArrayList<>();
                for (int number = 0; number < messages.size(); number++) {
                    results.add(sendOne(producer, options, messages.get(number), first + number));
                }
                return describe(messages, results, false);
        }
    }

    private static SendResult sendOne(DefaultMQProducer producer, Options options, Message message, int number)
        throws Exception {
        switch (options.text("mode")) {
            case "sync":
                return producer.send(message);
            case "oneway":
                producer.sendOneway(message);
                return null;
            case "queue":
                int queueId = options.number("queue");
                return producer.send(message, (queues, m, argument) -> queues.get((int) argument), queueId);
            case "hash":
                return producer.send(message, new SelectMessageQueueByHash(), number % options.number("keys"));
            default:
                throw new IllegalArgumentException("unknown mode " + options.text("mode"));
        }
    }

    private static Object sendAsync(DefaultMQProducer producer, List<Message> messages) throws Exception {
        SendResult[] results = new SendResult[messages.size()];
        List<String> errors = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch open = new CountDownLatch(messages.size());
        for (int number = 0; number < results.length; number++) {
            int place = number;
            producer.send(messages.get(number), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results[place] = result;
                    open.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    errors.add(error.toString());
                    open.countDown();
                }
            });
        }
        if (!open.await(2 * TIMEOUT_MS, TimeUnit.MILLISECONDS) || !errors.isEmpty()) {
            throw new IllegalStateException(open.getCount() + " unanswered, errors: " + errors);
        }
        return describe(messages, Arrays.asList(results), false);
    }

    private static Object describe(List<Message> messages, List<SendResult> results, boolean isBatch) {
        List<Object> all = new ArrayList<>();
        for (int number = 0; number < messages.size(); number++) {
            all.add(Described.sent(messages.get(number), results.get(number), isBatch ? number : 0));
        }
        return all;
    }

    static Message newMessage(Options options, int number) throws Exception {
        String name = options.text("label") + "-" + number;
        String[] tags = options.text("tags", "TagA").split(",");
        byte[] body = body(name, options.number("size", 0), options.text("padding", "text"));
        Message message = new Message(options.text("topic"), tags[number % tags.length], "key-" + name, body);
        message.putUserProperty("number", String.valueOf(number));
        message.putUserProperty("words", "für 东京 = \"x\"");
        String[] levels = options.text("delayLevels", "").split(",");
        if (!levels[number % levels.length].isEmpty()) {
            message.setDelayTimeLevel(Integer.parseInt(levels[number % levels.length]));
        }
        Since5.setTime(message, options);
        String[] priorities = options.text("priorities", "").split(",");
        if (!priorities[number % priorities.length].isEmpty()) {
            Since5.setPriority(message, Integer.parseInt(priorities[number % priorities.length]));
        }
        UserProperties.put(message, options, number);
        return message;
    }

    static byte[] body(String name, int size, String padding) {
        byte[] start = name.getBytes(StandardCharsets.UTF_8);
        if (size <= start.length) {
            return start;
        }
        byte[] body = new byte[size];
        if (padding.equals("random")) {
            // What cannot be compressed, the same for the same name.
            new Random(name.hashCode()).nextBytes(body);
        } else {
            Arrays.fill(body, (byte) 'x');
        }
        System.arraycopy(start, 0, body, 0, start.length);
        body[start.length] = '|';
        return body;
    }

    /** Take back a message that waits for its time. */
    Object recall(Options options) throws Exception {
        return Since5.recall(get(options), options.text("topic"), options.text("handle"));
    }

    // -- asking -------------------------------------------------------------------------------------------------

    Object query(Options options) throws Exception {
        DefaultMQProducer producer = get(options);
        String topic = options.text("topic");
        try {
            QueryResult found = producer.queryMessage(topic, options.text("key"), options.number("max", 32),
                options.big("begin"), options.big("end"));
            return Described.received(found.getMessageList());
        } catch (MQClientException error) {
            if (String.valueOf(error.getMessage()).contains("no message")) {
                return Collections.emptyList();
            }
            throw error;
        }
    }

    Object view(Options options) throws Exception {
        return Described.received(get(options).viewMessage(options.text("topic"), options.text("id")));
    }

    Object offsets(Options options) throws Exception {
        DefaultMQProducer producer = get(options);
        Map<String, Object> answer = new LinkedHashMap<>();
        for (MessageQueue queue : producer.fetchPublishMessageQueues(options.text("topic"))) {
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("min", producer.minOffset(queue));
            fields.put("max", producer.maxOffset(queue));
            fields.put("earliest", producer.earliestMsgStoreTime(queue));
            fields.put("at", producer.searchOffset(queue, options.big("time")));
            answer.put(String.valueOf(queue.getQueueId()), fields);
        }
        return answer;
    }

    // -- load ---------------------------------------------------------------------------------------------------

    Object startLoad(Options options) throws Exception {
        Load load = new Load(get(options), options.text("topic"), options.number("queues"));
        loads.put(options.text("name"), load);
        return true;
    }

    Object acknowledged(Options options) {
        return loads.get(options.text("name")).acknowledged();
    }

    Object stopLoad(Options options) throws Exception {
        Load load = loads.remove(options.text("name"));
        load.stop();
        return load.acknowledged();
    }
}
