"""Every key that Apache's brokers and name servers print is known here, with Apache's default."""

from __future__ import annotations

from pathlib import Path

from kourou.config import NamesrvConfig
from kourou.config.broker import BrokerConfig
from kourou.config.keys import format_value
from kourou.config.properties import parse_properties, properties_dict
from kourou.config.properties_file import read_properties

RECORDED = Path(__file__).with_name("apache_broker_config.txt")

# The recorded broker's own file, and what Apache derives from it or from the machine.
SET_BY_FILE = {
    "bitMapLengthConsumeQueueExt",
    "clientCallbackExecutorThreads",
    "fileReservedTime",
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "maxHashSlotNum",
    "maxIndexNum",
    "traceTopicEnable",
    "transactionCheckInterval",
}

# Where our default differs on purpose; broker_settings.py and replication_settings.py say why.
OURS_DIFFER = {"inSyncReplicas", "recallMessageEnable"}

# What `mqadmin getNamesrvConfig` shows of an Apache 5.5.0 name server without a file.
NAMESRV_5_5_0 = """\
bindAddress=0.0.0.0
clientRequestThreadPoolNums=8
clientRequestThreadPoolQueueCapacity=50000
clusterTest=false
configBlackList=configBlackList;configStorePath;kvConfigPath
configStorePath=/opt/rocketmq/conf/ns.conf
defaultThreadPoolNums=16
defaultThreadPoolQueueCapacity=10000
deleteTopicWithBrokerRegistration=false
enableAllTopicList=true
enableControllerInNamesrv=false
enableShutdownGracefully=false
enableTopicList=true
kvConfigPath=/opt/rocketmq/user/namesrv/kvConfig.json
listenPort=19876
needWaitForService=false
notifyMinBrokerIdChanged=false
orderMessageEnable=false
productEnvName=center
returnOrderTopicConfigToBroker=true
rocketmqHome=/opt/rocketmq
scanNotActiveBrokerInterval=5000
serverAsyncSemaphoreValue=64
serverCallbackExecutorThreads=0
serverChannelMaxIdleTimeSeconds=120
serverNettyWorkerGroupEnable=true
serverOnewaySemaphoreValue=256
serverPooledByteBufAllocatorEnable=true
serverSelectorThreads=3
serverSocketBacklog=1024
serverSocketRcvBufSize=0
serverSocketSndBufSize=0
serverWorkerThreads=8
shutdownWaitTimeSeconds=30
supportActingMaster=false
unRegisterBrokerQueueCapacity=3000
useEpollNativeSelector=false
waitSecondsForService=45
writeBufferHighWaterMark=0
writeBufferLowWaterMark=0
"""


def test_the_answer_to_a_config_request_is_the_one_apache_gives() -> None:
    config = NamesrvConfig(
        listen_port=19876,
        rocketmq_home="/opt/rocketmq",
        kv_config_path="/opt/rocketmq/user/namesrv/kvConfig.json",
        config_store_path="/opt/rocketmq/conf/ns.conf",
    )
    assert config.to_properties() == NAMESRV_5_5_0


def test_every_key_of_apache_brokers_is_known_with_its_type_and_default() -> None:
    table = BrokerConfig.known_keys() + NamesrvConfig.known_keys()
    for name, text in properties_dict(read_properties(RECORDED)).items():
        key = table.find(name)
        assert key is not None, f"{name} is not known"
        if text and name not in SET_BY_FILE | OURS_DIFFER and key.default is not None:
            assert format_value(key.parse(text)) == format_value(key.default), name


def test_the_exceptions_are_exceptions() -> None:
    table = BrokerConfig.known_keys() + NamesrvConfig.known_keys()
    recorded = properties_dict(parse_properties(RECORDED.read_text()))
    for name in SET_BY_FILE | OURS_DIFFER:
        key = table.find(name)
        assert key is not None and recorded[name] != format_value(key.default), name
