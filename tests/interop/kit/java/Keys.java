import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** The keys that a client signs with: options accessKey, secretKey and, if there is one, token. */
final class Keys {
    private Keys() {
    }

    /** What signs all requests of a client; null where it has no keys. */
    static RPCHook of(Options options) {
        String accessKey = options.text("accessKey", null);
        if (accessKey == null) {
            return null;
        }
        String token = options.text("token", null);
        return new AclClientRPCHook(token == null
            ? new SessionCredentials(accessKey, options.text("secretKey"))
            : new SessionCredentials(accessKey, options.text("secretKey"), token));
    }
}
