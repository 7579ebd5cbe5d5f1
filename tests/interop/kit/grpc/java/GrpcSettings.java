import java.util.Collections;
import java.util.Map;

import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;

/** What clients are configured with; what a command does not say is as the client has it. */
final class GrpcSettings {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    private GrpcSettings() {
    }

    static ClientConfiguration client(Options options) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(options.text("endpoints"));
        if (options.text("accessKey", null) != null) {
            builder.setCredentialProvider(
                new StaticSessionCredentialsProvider(options.text("accessKey"), options.text("secretKey")));
        }
        if (options.text("tls", null) != null) {
            builder.enableSsl(options.text("tls").equals("true"));
        }
        return builder.build();
    }

    static Map<String, FilterExpression> subscription(Options options) {
        FilterExpression filter = options.text("sql", null) == null
            ? new FilterExpression(options.text("expression", "*"), FilterExpressionType.TAG)
            : new FilterExpression(options.text("sql"), FilterExpressionType.SQL92);
        return Collections.singletonMap(options.text("topic"), filter);
    }
}
