import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicIntegerArray;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * One thread per queue that sends 0, 1, 2 … to it, each until it is acknowledged: a broker that dies may keep a
 * message twice, and the next number comes after it in any case.
 */
final class Load {
    private static final long PERIOD_MS = 1;
    private static final long RETRY_MS = 20;
    private final List<Thread> threads = new ArrayList<>();
    private final AtomicIntegerArray acknowledged;
    private volatile boolean stopping;

    Load(DefaultMQProducer producer, String topic, int queues) {
        acknowledged = new AtomicIntegerArray(queues);
        for (int queue = 0; queue < queues; queue++) {
            int queueId = queue;
            Thread thread = new Thread(() -> run(producer, topic, queueId), "load-" + queueId);
            thread.start();
            threads.add(thread);
        }
    }

    private void run(DefaultMQProducer producer, String topic, int queueId) {
        while (!stopping) {
            String name = queueId + "-" + acknowledged.get(queueId);
            if (send(producer, new Message(topic, Producers.body(name, 300, "text")), queueId)) {
                acknowledged.incrementAndGet(queueId);
                pause(PERIOD_MS);
            } else {
                pause(RETRY_MS);
            }
        }
    }

    private boolean send(DefaultMQProducer producer, Message message, int queueId) {
        try {
            SendResult result = producer.send(message, (queues, m, a) -> queues.get((int) a), queueId, 3000);
            return result.getSendStatus() == SendStatus.SEND_OK;
        } catch (Exception error) {
            return false;
        }
    }

    private static void pause(long timeMs) {
        try {
            Thread.sleep(timeMs);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    void stop() throws InterruptedException {
        stopping = true;
        for (Thread thread : threads) {
            thread.join();
        }
    }

    /** How many numbers of each queue were acknowledged. */
    List<Integer> acknowledged() {
        List<Integer> counts = new ArrayList<>();
        for (int queueId = 0; queueId < acknowledged.length(); queueId++) {
            counts.add(acknowledged.get(queueId));
        }
        return counts;
    }
}
