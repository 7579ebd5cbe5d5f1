import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.Callable;

import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQAdminImpl;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Reads everything that a broker has, and adds to it, with Apache's Java client and admin client.
 *
 * A line on stdin is one command, its words separated by tabs; each gives one JSON line on stdout, {"answer":...}
 * or {"error":...}:
 *   connect NAMESRV BROKER NAME TOPIC    wait until BROKER (address), called NAME, serves TOPIC
 *   queue TOPIC QUEUE                    min, max and every message in between, by pulls
 *   view TOPIC OFFSET_ID                 one message
 *   key TOPIC KEY MAX BEGIN_MS END_MS    messages by key
 *   unique TOPIC UNIQUE_ID               messages by unique id
 *   time TOPIC QUEUE TIMESTAMP           the offset for a time
 *   progress GROUP                       the group's offsets
 *   tables                               the broker's topics, groups and running figures
 *   send TOPIC COUNT SIZE                messages one by one, over all queues
 *   batch TOPIC COUNT SIZE               messages in one batch
 *   delay TOPIC COUNT LEVEL              messages with a delay level
 *   commit GROUP TOPIC                   from now on commit the transactions of GROUP that the broker of TOPIC asks for
 * The end of stdin ends the session.
 */
public class StoreSession {
    private static final PrintStream ANSWERS = System.out;
    private static final long TIMEOUT_MS = 20_000;
    private static final long CONNECT_TIMEOUT_MS = 60_000;
    private static final int PULL_MESSAGES = 32;

    private static DefaultMQPullConsumer consumer;
    private static DefaultMQAdminExt admin;
    private static DefaultMQProducer producer;
    private static String broker;
    private static String brokerName;
    private static int sent;

    public static void main(String[] args) throws Exception {
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("answer", run(line.split("\t", -1)));
            } catch (Throwable error) {
                error.printStackTrace();
                answer.put("error", error.toString());
            }
            ANSWERS.write((Json.of(answer) + "\n").getBytes(StandardCharsets.UTF_8));
            ANSWERS.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static Object run(String[] words) throws Exception {
        switch (words[0]) {
            case "connect":
                return connect(words[1], words[2], words[3], words[4]);
            case "queue":
                return readQueue(queue(words[1], words[2]));
            case "view":
                return describe(consumer.viewMessage(words[1], words[2]));
            case "key":
                return query(() -> consumer.queryMessage(words[1], words[2],
                    Integer.parseInt(words[3]), Long.parseLong(words[4]), Long.parseLong(words[5])));
            case "unique":
                return query(() ->
                    adminImpl().queryMessageByUniqKey(words[1], words[2], PULL_MESSAGES, 0, Long.MAX_VALUE));
            case "time":
                return consumer.searchOffset(queue(words[1], words[2]), Long.parseLong(words[3]));
            case "progress":
                return progress(words[1]);
            case "tables":
                return tables();
            case "send":
                return send(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
            case "batch":
                return sendBatch(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
            case "delay":
                return sendDelayed(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
            case "commit":
                return commit(words[1], words[2]);
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    // -- connecting ---------------------------------------------------------------------------------------------

    private static Object connect(String namesrv, String address, String name, String topic) throws Exception {
        broker = address;
        brokerName = name;
        if (admin == null) {
            startClients(namesrv);
        }
        long deadline = System.currentTimeMillis() + CONNECT_TIMEOUT_MS;
        while (true) {
            try {
                // 5.5.0 may find no name server in its first round and comes again much later; a change of its
                // permission makes it register now.
                Properties permission = new Properties();
                permission.setProperty("brokerPermission", "6");
                admin.updateBrokerConfig(broker, permission);
                for (var data : admin.examineTopicRouteInfo(topic).getBrokerDatas()) {
                    if (data.getBrokerAddrs().containsValue(broker)) {
                        // Reading and writing go by the client's own tables, which learn of the broker here.
                        producer.fetchPublishMessageQueues(topic);
                        return true;
                    }
                }
            } catch (Exception error) {
                if (System.currentTimeMillis() > deadline) {
                    throw error;
                }
            }
            Thread.sleep(100);
        }
    }

    private static void startClients(String namesrv) throws MQClientException {
        // The reader's own group must not be one whose offsets are looked at.
        consumer = new DefaultMQPullConsumer("interop-store-reader");
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("store");
        consumer.setConsumerPullTimeoutMillis(TIMEOUT_MS);
        consumer.start();
        producer = new DefaultMQProducer("interop-store-writer");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("store");
        producer.setSendMsgTimeout((int) TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        admin = new DefaultMQAdminExt(TIMEOUT_MS);
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName("store-admin");
        admin.start();
    }

    private static MessageQueue queue(String topic, String queueId) {
        return new MessageQueue(topic, brokerName, Integer.parseInt(queueId));
    }

    private static MQAdminImpl adminImpl() {
        return consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().getMQAdminImpl();
    }

    // -- reading ------------------------------------------------------------------------------------------------

    private static Object readQueue(MessageQueue queue) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        long min = consumer.minOffset(queue);
        long max = consumer.maxOffset(queue);
        answer.put("min", min);
        answer.put("max", max);
        answer.put("earliest", consumer.earliestMsgStoreTime(queue));
        List<Object> messages = new ArrayList<>();
        for (long next = min; next < max; ) {
            PullResult pulled = consumer.pull(queue, "*", next, PULL_MESSAGES, TIMEOUT_MS);
            if (pulled.getPullStatus() != PullStatus.FOUND || pulled.getNextBeginOffset() <= next) {
                answer.put("stopped", pulled.getPullStatus() + " at " + next);
                break;
            }
            for (MessageExt message : pulled.getMsgFoundList()) {
                messages.add(describe(message));
            }
            next = pulled.getNextBeginOffset();
        }
        answer.put("messages", messages);
        return answer;
    }

    private static Object query(Callable<QueryResult> question) throws Exception {
        try {
            return describeAll(question.call().getMessageList());
        } catch (MQClientException error) {
            if (error.getMessage().contains("no message")) {
                return Collections.emptyList();
            }
            throw error;
        }
    }

    private static List<Object> describeAll(List<MessageExt> found) throws Exception {
        List<Object> messages = new ArrayList<>();
        for (MessageExt message : found) {
            messages.add(describe(message));
        }
        return messages;
    }

    private static Map<String, Object> describe(MessageExt message) throws Exception {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("topic", message.getTopic());
        fields.put("queueId", message.getQueueId());
        fields.put("queueOffset", message.getQueueOffset());
        fields.put("phyOffset", message.getCommitLogOffset());
        fields.put("bodySha256", sha256(message.getBody()));
        fields.put("bodyCrc", message.getBodyCRC());
        fields.put("flag", message.getFlag());
        fields.put("sysFlag", message.getSysFlag());
        fields.put("bornTimestamp", message.getBornTimestamp());
        fields.put("bornHost", host(message.getBornHost()));
        fields.put("storeTimestamp", message.getStoreTimestamp());
        fields.put("storeHost", host(message.getStoreHost()));
        fields.put("reconsumeTimes", message.getReconsumeTimes());
        fields.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        fields.put("msgId", message.getMsgId());
        fields.put("offsetMsgId",
            message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId());
        fields.put("properties", new TreeMap<>(message.getProperties()));
        return fields;
    }

    private static String host(SocketAddress address) {
        InetSocketAddress inet = (InetSocketAddress) address;
        return inet.getAddress().getHostAddress() + " " + inet.getPort();
    }

    private static String sha256(byte[] body) throws Exception {
        byte[] empty = new byte[0];
        StringBuilder hex = new StringBuilder();
        for (byte b : MessageDigest.getInstance("SHA-256").digest(body == null ? empty : body)) {
            hex.append(String.format("%02x", b));
        }
        return hex.toString();
    }

    private static Object progress(String group) throws Exception {
        Map<String, Object> offsets = new TreeMap<>();
        for (var entry : admin.examineConsumeStats(group).getOffsetTable().entrySet()) {
            MessageQueue queue = entry.getKey();
            offsets.put(queue.getTopic() + " " + queue.getQueueId(), entry.getValue().getConsumerOffset());
        }
        return offsets;
    }

    private static Object tables() throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        Map<String, Object> topics = new TreeMap<>();
        for (var topic : admin.getAllTopicConfig(broker, TIMEOUT_MS).getTopicConfigTable().values()) {
            topics.put(topic.getTopicName(), List.of(
                topic.getReadQueueNums(), topic.getWriteQueueNums(), topic.getPerm(), topic.isOrder()));
        }
        Map<String, Object> groups = new TreeMap<>();
        for (var group : admin.getAllSubscriptionGroup(broker, TIMEOUT_MS).getSubscriptionGroupTable().values()) {
            groups.put(group.getGroupName(), List.of(
                group.isConsumeEnable(), group.getRetryQueueNums(), group.getRetryMaxTimes()));
        }
        answer.put("topics", topics);
        answer.put("groups", groups);
        answer.put("running", new TreeMap<>(admin.fetchBrokerRuntimeStats(broker).getTable()));
        return answer;
    }

    // -- writing ------------------------------------------------------------------------------------------------

    private static Object send(String topic, int count, int size) throws Exception {
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
        List<Object> results = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            Message message = newMessage(topic, size);
            results.add(describe(message, producer.send(message, queues.get(number % queues.size())), 0));
        }
        return results;
    }

    private static Object sendBatch(String topic, int count, int size) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            messages.add(newMessage(topic, size));
        }
        SendResult result = producer.send(messages, producer.fetchPublishMessageQueues(topic).get(0));
        List<Object> results = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            results.add(describe(messages.get(number), result, number));
        }
        return results;
    }

    private static Object sendDelayed(String topic, int count, int level) throws Exception {
        List<Object> results = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            Message message = newMessage(topic, 100);
            message.setDelayTimeLevel(level);
            results.add(describe(message, producer.send(message), 0));
        }
        return results;
    }

    private static Message newMessage(String topic, int size) {
        int number = sent++;
        StringBuilder body = new StringBuilder("of Apache, number " + number + " ");
        while (body.length() < size) {
            body.append((char) ('a' + body.length() % 26));
        }
        Message message = new Message(topic, "Tag" + number % 3, "java-" + number + " 东京",
            body.toString().getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("number", String.valueOf(number));
        return message;
    }

    private static Map<String, Object> describe(Message message, SendResult result, int number) throws Exception {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("status", result.getSendStatus().name());
        fields.put("topic", message.getTopic());
        fields.put("queueId", result.getMessageQueue().getQueueId());
        fields.put("queueOffset", result.getQueueOffset() + number);
        fields.put("offsetMsgId", result.getOffsetMsgId().split(",")[number]);
        fields.put("msgId", result.getMsgId().split(",")[number]);
        fields.put("bodySha256", sha256(message.getBody()));
        fields.put("tags", message.getTags());
        fields.put("keys", message.getKeys());
        fields.put("number", message.getUserProperty("number"));
        return fields;
    }

    private static Object commit(String group, String topic) throws Exception {
        TransactionMQProducer transactions = new TransactionMQProducer(group);
        transactions.setNamesrvAddr(producer.getNamesrvAddr());
        transactions.setInstanceName("store-transactions");
        transactions.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        transactions.setHeartbeatBrokerInterval(1000);
        transactions.start();
        // Heartbeats go to the brokers of the topics that a client works with.
        clientOf(transactions).updateTopicRouteInfoFromNameServer(topic);
        return true;
    }

    private static MQClientInstance clientOf(DefaultMQProducer producer) {
        return producer.getDefaultMQProducerImpl().getMqClientFactory();
    }
}
