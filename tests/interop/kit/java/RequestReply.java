import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Requests, and responders by name: a push consumer that answers each message with a producer of its own. */
final class RequestReply {
    private final Map<String, Responder> responders = new ConcurrentHashMap<>();

    /** Answers requests, and notes what became of each answer. */
    private static final class Responder {
        private final DefaultMQPushConsumer consumer;
        private final DefaultMQProducer producer;
        private final int slowMs;
        private final int size;
        private final List<Object> replies = new ArrayList<>();

        Responder(Options options) throws Exception {
            slowMs = options.number("slowMs", 0);
            size = options.number("size", 0);
            producer = new DefaultMQProducer(options.text("group") + "-replies", Keys.of(options));
            producer.setNamesrvAddr(options.text("namesrv"));
            producer.setInstanceName(options.text("name") + "-replies");
            producer.setSendMsgTimeout(10_000);
            consumer = new DefaultMQPushConsumer(
                options.text("group"), Keys.of(options), Strategies.of("AVG"));
            consumer.setNamesrvAddr(options.text("namesrv"));
            consumer.setInstanceName(options.text("name"));
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(options.text("topic"), "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(this::answer);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }

        private void answer(MessageExt request) {
            Map<String, Object> fields = Described.received(request);
            try {
                Thread.sleep(slowMs);
                String name = "reply-to-" + Described.name(request.getBody());
                Message reply = MessageUtil.createReplyMessage(request, Producers.body(name, size, "text"));
                reply.putUserProperty("answers", request.getMsgId());
                fields.put("result", producer.send(reply).getSendStatus().name());
            } catch (Exception error) {
                fields.put("result", error + " " + error.getCause());
            }
            synchronized (this) {
                replies.add(fields);
                notifyAll();
            }
        }

        synchronized List<Object> take(int count, long timeoutMs) throws InterruptedException {
            long deadline = System.currentTimeMillis() + timeoutMs;
            long left = timeoutMs;
            while (replies.size() < count && left > 0) {
                wait(left);
                left = deadline - System.currentTimeMillis();
            }
            return new ArrayList<>(replies);
        }
    }

    Object start(Options options) throws Exception {
        Responder responder = new Responder(options);
        responder.producer.start();
        responder.consumer.start();
        responders.put(options.text("name"), responder);
        return true;
    }

    boolean stop(String name) {
        Responder responder = responders.remove(name);
        if (responder != null) {
            responder.consumer.shutdown();
            responder.producer.shutdown();
        }
        return responder != null;
    }

    /** Ask, and wait for the reply: in the call (sync), by a callback (async), or at a queue of choice (queue). */
    Object request(DefaultMQProducer producer, Options options) throws Exception {
        Message message = Producers.newMessage(options, 0);
        int timeoutMs = options.number("timeoutMs", 60_000);
        Map<String, Object> answer = new LinkedHashMap<>();
        long begin = System.currentTimeMillis();
        switch (options.text("mode", "sync")) {
            case "async":
                answer.put("reply", described(requestAsync(producer, message, timeoutMs)));
                break;
            case "queue":
                answer.put("reply", described(producer.request(
                    message, (queues, m, argument) -> queues.get((int) argument), options.number("queue"), timeoutMs)));
                break;
            default:
                answer.put("reply", described(producer.request(message, timeoutMs)));
        }
        answer.put("tookMs", System.currentTimeMillis() - begin);
        answer.put("msgId", message.getProperty("UNIQ_KEY"));
        return answer;
    }

    private static Map<String, Object> described(Message reply) {
        return Described.received((MessageExt) reply);
    }

    private static Message requestAsync(DefaultMQProducer producer, Message message, int timeoutMs) throws Exception {
        CompletableFuture<Message> reply = new CompletableFuture<>();
        producer.request(message, new RequestCallback() {
            @Override
            public void onSuccess(Message received) {
                // The client calls once when the request is sent, without a message, and again with the reply.
                if (received != null) {
                    reply.complete(received);
                }
            }

            @Override
            public void onException(Throwable error) {
                reply.completeExceptionally(error);
            }
        }, timeoutMs);
        return reply.get(2L * timeoutMs, TimeUnit.MILLISECONDS);
    }

    /** All requests that a responder has answered, with the result of each answer. */
    Object replies(Options options) throws InterruptedException {
        return responders.get(options.text("responder")).take(
            options.number("count"), options.number("timeoutMs", 60_000));
    }
}
