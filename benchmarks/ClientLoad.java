import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The official Java client under the loads of `kourou bench`, for client.py; one line of JSON at the end.
 *
 *   ClientLoad MODE NAMESRV TOPIC GROUP NUMBER SIZE WARM_UP_S SECONDS
 *
 * MODE and what NUMBER is: `threads`, that wait for each send; `window`, sends in flight; `consume`, messages
 * to end after; `latency`, messages a second.
 */
final class ClientLoad {
    private static final long TIMER_NS = 2_000_000;
    private static final long FIRST_MESSAGE_NS = 60_000_000_000L;
    private static final int CONSUMER_THREADS = 20;
    private static final int MAX_SAMPLES = 10_000_000;

    private final String mode;
    private final String namesrv;
    private final String topic;
    private final String group;
    private final int number;
    private final byte[] body;
    private final double warmUpS;
    private final double seconds;

    private final AtomicLong done = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();
    private final AtomicBoolean stopping = new AtomicBoolean();
    private final long[] samplesNs = new long[MAX_SAMPLES];
    private final AtomicLong sampleCount = new AtomicLong();
    private volatile boolean counting;

    private ClientLoad(String[] words) {
        mode = words[0];
        namesrv = words[1];
        topic = words[2];
        group = words[3];
        number = Integer.parseInt(words[4]);
        body = new byte[Integer.parseInt(words[5])];
        Arrays.fill(body, (byte) 'a');
        warmUpS = Double.parseDouble(words[6]);
        seconds = Double.parseDouble(words[7]);
    }

    public static void main(String[] words) throws Exception {
        new ClientLoad(words).run();
        // The clients' threads are of no more interest.
        System.exit(0);
    }

    private void run() throws Exception {
        switch (mode) {
            case "threads":
                sendInThreads();
                break;
            case "window":
                sendInWindow();
                break;
            case "consume":
                consume();
                break;
            case "latency":
                latency();
                break;
            default:
                throw new IllegalArgumentException(mode);
        }
        measure();
    }

    /** Wait for the warm-up, then count for the time that is asked for, or until all is consumed. */
    private void measure() throws InterruptedException {
        waitFirst();
        waitFor(warmUpS);
        counting = true;
        long before = done.get();
        long cpuBefore = cpuNs();
        long began = System.nanoTime();
        waitFor(seconds);
        double tookS = (System.nanoTime() - began) / 1e9;
        long messages = done.get() - before;
        long cpu = cpuNs() - cpuBefore;
        counting = false;
        stopping.set(true);
        long[] sorted = Arrays.copyOf(samplesNs, (int) Math.min(sampleCount.get(), MAX_SAMPLES));
        Arrays.sort(sorted);
        System.out.printf(
            "{\"messages\": %d, \"messages_per_s\": %.1f, \"cpu_us_per_message\": %.3f, \"failed\": %d, "
                + "\"p50_ms\": %.4f, \"p99_ms\": %.4f, \"total\": %d}%n",
            messages, messages / tookS, cpu / 1e3 / Math.max(1, messages), failed.get(),
            percentileMs(sorted, 0.50), percentileMs(sorted, 0.99), done.get());
    }

    /** Starting and connecting is no part of the warm-up. */
    private void waitFirst() throws InterruptedException {
        long deadline = System.nanoTime() + FIRST_MESSAGE_NS;
        while (System.nanoTime() < deadline && done.get() == 0) {
            Thread.sleep(5);
        }
    }

    private void waitFor(double waitS) throws InterruptedException {
        long deadline = System.nanoTime() + (long) (waitS * 1e9);
        while (System.nanoTime() < deadline && !stopping.get()) {
            Thread.sleep(5);
        }
    }

    private static double percentileMs(long[] sorted, double share) {
        return sorted.length == 0 ? 0 : sorted[Math.min(sorted.length - 1, (int) (sorted.length * share))] / 1e6;
    }

    private static long cpuNs() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }

    private void sample(long timeNs) {
        done.incrementAndGet();
        if (counting) {
            long index = sampleCount.getAndIncrement();
            if (index < MAX_SAMPLES) {
                samplesNs[(int) index] = timeNs;
            }
        }
    }

    private DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.start();
        return producer;
    }

    private void sendInThreads() throws Exception {
        DefaultMQProducer producer = producer();
        for (int index = 0; index < number; index++) {
            Thread thread = new Thread(() -> {
                while (!stopping.get()) {
                    long began = System.nanoTime();
                    try {
                        producer.send(new Message(topic, body));
                        sample(System.nanoTime() - began);
                    } catch (Exception error) {
                        failed.incrementAndGet();
                    }
                }
            }, "send-" + index);
            thread.setDaemon(true);
            thread.start();
        }
    }

    private void sendInWindow() throws Exception {
        DefaultMQProducer producer = producer();
        Semaphore room = new Semaphore(number);
        Thread thread = new Thread(() -> {
            while (!stopping.get()) {
                room.acquireUninterruptibly();
                sendOne(producer, System.nanoTime(), new Message(topic, body), room, true);
            }
        }, "send");
        thread.setDaemon(true);
        thread.start();
    }

    private void sendOne(
        DefaultMQProducer producer, long began, Message message, Semaphore room, boolean timed) {
        try {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    room.release();
                    if (timed) {
                        sample(System.nanoTime() - began);
                    }
                }

                @Override
                public void onException(Throwable error) {
                    room.release();
                    failed.incrementAndGet();
                }
            });
        } catch (Exception error) {
            room.release();
            failed.incrementAndGet();
        }
    }

    private void startConsumer(String tags, ConsumeFromWhere where, MessageListenerConcurrently listener)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(where);
        consumer.setConsumeThreadMin(CONSUMER_THREADS);
        consumer.setConsumeThreadMax(CONSUMER_THREADS);
        consumer.subscribe(topic, tags);
        consumer.registerMessageListener(listener);
        consumer.start();
    }

    private void consume() throws Exception {
        startConsumer("*", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, (messages, context) -> {
            if (done.addAndGet(messages.size()) >= number) {
                stopping.set(true);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }

    private void latency() throws Exception {
        // The group is this run's own, and so is the tag: what other runs have left in the topic has other clocks.
        startConsumer(group, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, (messages, context) -> {
            for (MessageExt message : messages) {
                sample(System.nanoTime() - ByteBuffer.wrap(message.getBody()).getLong());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQProducer producer = producer();
        Semaphore room = new Semaphore(10_000);
        Thread thread = new Thread(() -> {
            long began = System.nanoTime();
            for (long index = 0; !stopping.get(); index++) {
                long due = began + index * 1_000_000_000L / number;
                long early = due - System.nanoTime();
                while (early > 0) {
                    LockSupport.parkNanos(early);
                    early = due - System.nanoTime();
                }
                room.acquireUninterruptibly();
                long counted = early < -TIMER_NS ? due : System.nanoTime();
                byte[] content = body.clone();
                ByteBuffer.wrap(content).putLong(counted);
                sendOne(producer, counted, new Message(topic, group, content), room, false);
            }
        }, "send");
        thread.setDaemon(true);
        thread.start();
    }
}
