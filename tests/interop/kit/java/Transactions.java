import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Transaction producers by name, and what each was asked by the broker.
 *
 * How a transaction ends is written on its message: in property `local` what the sender says, in property `checked`
 * what any producer of the group says when it is asked. Both are commit, rollback or unknown.
 */
final class Transactions {
    private final Map<String, TransactionMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, Checks> checks = new ConcurrentHashMap<>();

    /** Says how transactions end, and notes what it was asked. */
    private static final class Checks implements TransactionListener {
        private final List<Object> asked = new ArrayList<>();

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return state(message, "local");
        }

        @Override
        public synchronized LocalTransactionState checkLocalTransaction(MessageExt message) {
            Map<String, Object> fields = Described.received(message);
            fields.put("transactionId", message.getTransactionId());
            fields.put("askedMs", System.currentTimeMillis());
            asked.add(fields);
            notifyAll();
            return state(message, "checked");
        }

        private static LocalTransactionState state(Message message, String property) {
            switch (message.getUserProperty(property)) {
                case "commit":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }

        synchronized List<Object> take(int count, long timeoutMs) throws InterruptedException {
            long deadline = System.currentTimeMillis() + timeoutMs;
            long left = timeoutMs;
            while (asked.size() < count && left > 0) {
                wait(left);
                left = deadline - System.currentTimeMillis();
            }
            return new ArrayList<>(asked);
        }
    }

    Object start(Options options) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(options.text("group"), Keys.of(options));
        Checks listener = new Checks();
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setInstanceName(options.text("name"));
        producer.setPollNameServerInterval(1000);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setSendMsgTimeout(10_000);
        producer.setTransactionListener(listener);
        producer.start();
        producers.put(options.text("name"), producer);
        checks.put(options.text("name"), listener);
        return true;
    }

    boolean stop(String name) {
        TransactionMQProducer producer = producers.remove(name);
        if (producer != null) {
            producer.shutdown();
        }
        return producer != null;
    }

    /** Send messages in transactions, one after the other. */
    Object send(Options options) throws Exception {
        TransactionMQProducer producer = producers.get(options.text("producer"));
        List<Object> sent = new ArrayList<>();
        for (int number = 0; number < options.number("count"); number++) {
            Message message = newMessage(options, number);
            TransactionSendResult result = producer.sendMessageInTransaction(message, null);
            // This client keeps no offset id of a half message.
            Map<String, Object> fields = Described.sent(message, null, 0);
            fields.put("status", result.getSendStatus().name());
            fields.put("queueId", result.getMessageQueue().getQueueId());
            fields.put("queueOffset", result.getQueueOffset());
            fields.put("msgId", result.getMsgId());
            fields.put("transactionId", result.getTransactionId());
            fields.put("state", result.getLocalTransactionState().name());
            sent.add(fields);
        }
        return sent;
    }

    private static Message newMessage(Options options, int number) throws Exception {
        Message message = Producers.newMessage(options, number);
        message.putUserProperty("local", options.text("local", "unknown"));
        message.putUserProperty("checked", options.text("checked", "unknown"));
        if (options.text("immunitySeconds", null) != null) {
            message.putUserProperty(
                MessageConst.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS, options.text("immunitySeconds"));
        }
        return message;
    }

    /** Send what no method of a transaction producer sends: a half message with a delay, or in a batch. */
    Object sendMarked(Options options) throws Exception {
        TransactionMQProducer producer = producers.get(options.text("producer"));
        Message message = newMessage(options, 0);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_TRANSACTION_PREPARED, "true");
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_PRODUCER_GROUP, producer.getProducerGroup());
        boolean isBatch = options.text("batch", "false").equals("true");
        return Described.sent(
            message, isBatch ? producer.send(Collections.singletonList(message)) : producer.send(message), 0);
    }

    /** All that the broker asked a producer, once these are so many questions or the time is over. */
    Object checks(Options options) throws InterruptedException {
        return checks.get(options.text("producer")).take(options.number("count"), options.number("timeoutMs", 30_000));
    }
}
