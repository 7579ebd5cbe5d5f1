import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** Allocation strategies by their names on the wire. */
final class Strategies {
    private Strategies() {
    }

    static AllocateMessageQueueStrategy of(String name) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash();
            case "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE":
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragelyByCircle(), new OneRoom());
            default:
                throw new IllegalArgumentException("no strategy " + name);
        }
    }

    /** Everybody and everything is in the same room. */
    private static final class OneRoom implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return "room";
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return "room";
        }
    }
}
