import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends and receives with Apache's Java client; one JVM for many commands.
 *
 * A line on stdin is one command, its words separated by tabs:
 *   send     NAMESRV TOPIC COUNT          send COUNT messages
 *   exchange NAMESRV TOPIC GROUP COUNT    send COUNT messages and receive them
 *   stream   NAMESRV TOPIC GROUP SECONDS  send one message every 100 ms, and receive them all
 * Every event is one JSON line on stdout: {"event":"sent"}, "send_failed", "received", and "done" or "failed"
 * at the end of a command. The end of stdin ends the session.
 */
public class ClientSession {
    private static final PrintStream EVENTS = System.out;
    private static final long SEND_PERIOD_MS = 100;
    private static final long RECEIVE_TIMEOUT_MS = 30_000;
    private static final long ROUTE_TIMEOUT_MS = 10_000;
    private static final int CONSUMER_START_ATTEMPTS = 20;
    private static int commandNumber;

    public static void main(String[] args) throws Exception {
        System.setOut(System.err);
        // A consumer that misses its first rebalance, on a busy machine, would wait 20 s for the next.
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
        ShutdownHurry.watch(Thread.currentThread());
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            commandNumber++;
            try {
                run(line.split("\t"));
                event("done", "");
            } catch (Throwable error) {
                event("failed", ",\"error\":" + Json.of(error.toString()));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(String[] words) throws Exception {
        String namesrv = words[1];
        String topic = words[2];
        switch (words[0]) {
            case "send":
                send(namesrv, topic, Integer.parseInt(words[3]));
                break;
            case "exchange":
                exchange(namesrv, topic, words[3], Integer.parseInt(words[4]), 0);
                break;
            case "stream":
                long count = Long.parseLong(words[4]) * 1000 / SEND_PERIOD_MS;
                exchange(namesrv, topic, words[3], (int) count, SEND_PERIOD_MS);
                break;
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private static void send(String namesrv, String topic, int count) throws Exception {
        DefaultMQProducer producer = startProducer(namesrv);
        try {
            for (int number = 0; number < count; number++) {
                send(producer, topic, number, new HashSet<>());
            }
        } finally {
            producer.shutdown();
        }
    }

    private static void exchange(String namesrv, String topic, String group, int count, long periodMs)
        throws Exception {
        Set<String> received = ConcurrentHashMap.newKeySet();
        Set<String> sent = new HashSet<>();
        DefaultMQProducer producer = startProducer(namesrv);
        DefaultMQPushConsumer consumer = null;
        try {
            send(producer, topic, 0, sent);
            waitForRoute(producer, topic);
            consumer = startConsumer(namesrv, topic, group, received);
            for (int number = 1; number < count; number++) {
                Thread.sleep(periodMs);
                send(producer, topic, number, sent);
            }
            waitReceived(sent, received);
        } finally {
            producer.shutdown();
            if (consumer != null) {
                consumer.shutdown();
            }
        }
    }

    /** A new topic gets to the name server a little later than the answer to its first message to the producer. */
    private static void waitForRoute(DefaultMQProducer producer, String topic) throws Exception {
        long deadline = System.currentTimeMillis() + ROUTE_TIMEOUT_MS;
        while (true) {
            try {
                producer.fetchPublishMessageQueues(topic);
                return;
            } catch (MQClientException | IllegalStateException error) {
                // No route yet, or the first name server of the list is down: the next call takes another one.
                if (System.currentTimeMillis() > deadline) {
                    throw error;
                }
            }
            Thread.sleep(20);
        }
    }

    private static DefaultMQProducer startProducer(String namesrv) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("producer-" + commandNumber);
        producer.setPollNameServerInterval(1000);
        producer.setSendMsgTimeout(5000);
        producer.start();
        return producer;
    }

    /** A consumer of 5.5.0 does not start when the name server that it happens to ask first is down. */
    private static DefaultMQPushConsumer startConsumer(
        String namesrv, String topic, String group, Set<String> received) throws Exception {
        for (int attempt = 1; ; attempt++) {
            DefaultMQPushConsumer consumer = newConsumer(namesrv, topic, group, received);
            try {
                consumer.start();
                return consumer;
            } catch (IllegalStateException error) {
                consumer.shutdown();
                if (attempt == CONSUMER_START_ATTEMPTS) {
                    throw error;
                }
            }
        }
    }

    private static DefaultMQPushConsumer newConsumer(
        String namesrv, String topic, String group, Set<String> received) throws MQClientException {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("consumer-" + System.nanoTime());
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(new MessageListenerConcurrently() {
            @Override
            public ConsumeConcurrentlyStatus consumeMessage(List<MessageExt> messages, ConsumeConcurrentlyContext c) {
                for (MessageExt message : messages) {
                    String body = new String(message.getBody(), StandardCharsets.UTF_8);
                    event("received", ",\"body\":" + Json.of(body));
                    received.add(body);
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
        });
        return consumer;
    }

    private static void send(DefaultMQProducer producer, String topic, int number, Set<String> sent) {
        String body = "message " + commandNumber + "/" + number + " für 东京";
        try {
            SendResult result = producer.send(new Message(topic, "TagA", body.getBytes(StandardCharsets.UTF_8)));
            sent.add(body);
            event("sent", ",\"body\":" + Json.of(body)
                + ",\"status\":" + Json.of(result.getSendStatus().name())
                + ",\"broker\":" + Json.of(result.getMessageQueue().getBrokerName()));
        } catch (Exception error) {
            event("send_failed", ",\"body\":" + Json.of(body) + ",\"error\":" + Json.of(error.toString()));
        }
    }

    private static void waitReceived(Set<String> sent, Set<String> received) throws InterruptedException {
        long deadline = System.currentTimeMillis() + RECEIVE_TIMEOUT_MS;
        while (!received.containsAll(sent) && System.currentTimeMillis() < deadline) {
            Thread.sleep(20);
        }
    }

    private static void event(String name, String fields) {
        synchronized (EVENTS) {
            byte[] line = ("{\"event\":\"" + name + "\"" + fields + "}\n").getBytes(StandardCharsets.UTF_8);
            EVENTS.write(line, 0, line.length);
            EVENTS.flush();
        }
    }
}
