import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Collections;
import java.util.Map;
import java.util.Set;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.impl.consumer.RebalanceImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Calls that the client of 5.x has and that of 4.9 has not: timers and their recall, priorities, queues
 * that the broker assigns, POP. */
final class Since5 {
    private Since5() {
    }

    /** Give a message its time: delaySec, delayMs (both from now) or deliverMs (a moment). */
    static void setTime(Message message, Options options) throws Exception {
        set(message, "setDelayTimeSec", options.text("delaySec", null));
        set(message, "setDelayTimeMs", options.text("delayMs", null));
        set(message, "setDeliverTimeMs", options.text("deliverMs", null));
    }

    private static void set(Message message, String setter, String value) throws Exception {
        if (value != null) {
            Message.class.getMethod(setter, long.class).invoke(message, Long.parseLong(value));
        }
    }

    /** Give a message a priority (5.5). */
    static void setPriority(Message message, int priority) throws ReflectiveOperationException {
        Message.class.getMethod("setPriority", int.class).invoke(message, priority);
    }

    /** Let the broker say which queues the consumer reads, and whether by pulling or by POP. */
    static void letBrokerAssignQueues(DefaultMQPushConsumer consumer) throws ReflectiveOperationException {
        DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
    }

    /** The queues that a consumer pops from; none before 5.x. */
    @SuppressWarnings("unchecked")
    static Set<MessageQueue> poppedQueues(RebalanceImpl rebalance) throws ReflectiveOperationException {
        try {
            Method table = RebalanceImpl.class.getMethod("getPopProcessQueueTable");
            return ((Map<MessageQueue, Object>) table.invoke(rebalance)).keySet();
        } catch (NoSuchMethodException absent) {
            return Collections.emptySet();
        }
    }

    /** What a sender may recall the message with; null where there is nothing to recall. */
    static String recallHandle(SendResult result) {
        try {
            return (String) SendResult.class.getMethod("getRecallHandle").invoke(result);
        } catch (ReflectiveOperationException error) {
            return null;
        }
    }

    /** Take a message back; the id that the broker tells. */
    static Object recall(DefaultMQProducer producer, String topic, String handle) throws Exception {
        try {
            return DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                .invoke(producer, topic, handle);
        } catch (InvocationTargetException error) {
            throw (Exception) error.getCause();
        }
    }
}
