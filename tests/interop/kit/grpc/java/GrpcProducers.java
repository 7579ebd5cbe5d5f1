import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** Producers by name, and what each was asked for as the owner of transactions without an end. */
final class GrpcProducers {
    private final Map<String, Producer> producers = new ConcurrentHashMap<>();
    private final Map<String, Inbox> checks = new ConcurrentHashMap<>();

    Object start(Options options) throws ClientException {
        String name = options.text("name");
        ProducerBuilder builder = GrpcSettings.PROVIDER.newProducerBuilder()
            .setClientConfiguration(GrpcSettings.client(options));
        if (options.text("topics", null) != null) {
            builder.setTopics(options.text("topics").split(","));
        }
        if (options.text("checker", "false").equals("true")) {
            Inbox asked = new Inbox();
            checks.put(name, asked);
            builder.setTransactionChecker(view -> {
                String body = GrpcMessages.name(view.getBody());
                asked.add(body, GrpcMessages.received(view));
                return resolution(body);
            });
        }
        producers.put(name, builder.build());
        return true;
    }

    /** The first word of a name says how the transaction ends. */
    private static TransactionResolution resolution(String body) {
        switch (body.split("-")[0]) {
            case "commit":
                return TransactionResolution.COMMIT;
            case "rollback":
                return TransactionResolution.ROLLBACK;
            default:
                return TransactionResolution.UNKNOWN;
        }
    }

    /** Send one message after the other; what each send ended with. */
    Object send(Options options) {
        List<Object> sent = new ArrayList<>();
        for (String name : options.text("bodies").split(",", -1)) {
            sent.add(sendOne(options, name));
        }
        return sent;
    }

    private Map<String, Object> sendOne(Options options, String name) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("body", name);
        try {
            SendReceipt receipt = producers.get(options.text("producer")).send(GrpcMessages.message(options, name));
            fields.put("messageId", receipt.getMessageId().toString());
            fields.put("recallHandle", receipt.getRecallHandle());
        } catch (Throwable error) {
            error.printStackTrace();
            fields.putAll(Failure.of(error));
        }
        return fields;
    }

    /** Each message in a transaction of its own, which ends as its name says. */
    Object sendTransactions(Options options) throws ClientException {
        Producer producer = producers.get(options.text("producer"));
        List<Object> sent = new ArrayList<>();
        for (String name : options.text("bodies").split(",")) {
            Transaction transaction = producer.beginTransaction();
            Message message = GrpcMessages.message(options, name);
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("body", name);
            fields.put("messageId", producer.send(message, transaction).getMessageId().toString());
            sent.add(fields);
            if (options.text("end", "true").equals("true")) {
                end(transaction, resolution(name));
            }
        }
        return sent;
    }

    private static void end(Transaction transaction, TransactionResolution resolution) throws ClientException {
        if (resolution == TransactionResolution.COMMIT) {
            transaction.commit();
        } else if (resolution == TransactionResolution.ROLLBACK) {
            transaction.rollback();
        }
    }

    Object checks(Options options) throws InterruptedException {
        return checks.get(options.text("producer")).take(options);
    }

    Object recall(Options options) throws ClientException {
        return producers.get(options.text("producer"))
            .recallMessage(options.text("topic"), options.text("handle")).getMessageId().toString();
    }

    boolean stop(String name) throws Exception {
        Producer producer = producers.remove(name);
        if (producer == null) {
            return false;
        }
        producer.close();
        return true;
    }
}
