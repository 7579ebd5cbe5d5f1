package main

import (
	"bytes"
	"hash/crc32"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// Messages as maps of their fields. A body is a name, and for larger ones "|" and padding; told of it are the
// name, the size and a checksum.
type fields map[string]any

func describeBody(body []byte) fields {
	name, _, _ := bytes.Cut(body, []byte("|"))
	return fields{"body": string(name), "size": len(body), "crc": crc32.ChecksumIEEE(body)}
}

func describeSent(message *primitive.Message, result *primitive.SendResult, number int) fields {
	described := describeBody(message.Body)
	described["tags"] = message.GetTags()
	described["keys"] = strings.TrimSpace(message.GetKeys())
	if result != nil {
		described["status"] = statusNames[result.Status]
		described["broker"] = result.MessageQueue.BrokerName
		described["queueId"] = result.MessageQueue.QueueId
		described["queueOffset"] = result.QueueOffset + int64(number)
		setPart(described, "msgId", result.MsgID, number)
		setPart(described, "offsetMsgId", result.OffsetMsgID, number)
	}
	return described
}

// This client keeps no unique ids of a batch.
func setPart(described fields, name string, ids string, number int) {
	if parts := strings.Split(ids, ","); ids != "" && number < len(parts) {
		described[name] = parts[number]
	}
}

var statusNames = map[primitive.SendStatus]string{
	primitive.SendOK:                "SEND_OK",
	primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
	primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
	primitive.SendUnknownError:      "UNKNOWN",
}

func describeReceived(message *primitive.MessageExt) fields {
	described := describeBody(message.Body)
	described["topic"] = message.Topic
	described["tags"] = message.GetTags()
	described["keys"] = strings.TrimSpace(message.GetKeys())
	described["queueId"] = message.Queue.QueueId
	described["queueOffset"] = message.QueueOffset
	described["msgId"] = message.MsgId
	described["offsetMsgId"] = message.OffsetMsgId
	described["sysFlag"] = message.SysFlag
	described["bornTimestamp"] = message.BornTimestamp
	described["storeTimestamp"] = message.StoreTimestamp
	described["reconsumeTimes"] = message.ReconsumeTimes
	described["properties"] = message.GetProperties()
	return described
}

func describeAll(messages []*primitive.MessageExt) []fields {
	described := []fields{}
	for _, message := range messages {
		described = append(described, describeReceived(message))
	}
	return described
}
