package main

import (
	"hash/crc32"
	"sort"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

// A body is a name, and for larger ones "|" and padding; told of it are the name, the size and a checksum.
func body(name string, size int) []byte {
	if size > 0 {
		name += "|" + strings.Repeat("x", max(0, size-len(name)-1))
	}
	return []byte(name)
}

func nameOf(body []byte) string {
	name, _, _ := strings.Cut(string(body), "|")
	return name
}

func newMessage(o options, name string) (*rmq.Message, error) {
	message := &rmq.Message{Topic: o.text("topic", ""), Body: body(name, o.number("size", 0))}
	if o.has("tag") {
		message.SetTag(o.text("tag", ""))
	}
	if o.has("keys") {
		message.SetKeys(strings.Split(o.text("keys", ""), ",")...)
	}
	if o.has("group") {
		message.SetMessageGroup(o.text("group", ""))
	}
	if o.has("delayMs") {
		message.SetDelayTimestamp(time.Now().Add(o.duration("delayMs", 0)))
	}
	for _, property := range strings.Split(o.text("properties", ""), ";") {
		if key, value, found := strings.Cut(property, "="); found {
			message.AddProperty(key, value)
		}
	}
	if o.has("priority") {
		return message, message.SetPriority(int32(o.number("priority", 0)))
	}
	return message, nil
}

func described(view *rmq.MessageView) fields {
	keys := append([]string{}, view.GetKeys()...)
	sort.Strings(keys)
	told := fields{
		"body": nameOf(view.GetBody()), "size": len(view.GetBody()), "crc": crc32.ChecksumIEEE(view.GetBody()),
		"topic": view.GetTopic(), "messageId": view.GetMessageId(), "tag": view.GetTag(), "keys": keys,
		"group": view.GetMessageGroup(), "properties": view.GetProperties(), "bornHost": view.GetBornHost(),
		"attempt": view.GetDeliveryAttempt(), "receivedMs": time.Now().UnixMilli(), "deliveryTimestamp": nil,
	}
	if at := view.GetDeliveryTimestamp(); at != nil {
		told["deliveryTimestamp"] = at.UnixMilli()
	}
	if at := view.GetBornTimestamp(); at != nil {
		told["bornTimestamp"] = at.UnixMilli()
	}
	return told
}

// Messages in the order in which they came, to wait for.
type inbox struct {
	lock     sync.Mutex
	messages []fields
	names    map[string]int
}

func newInbox() *inbox {
	return &inbox{names: map[string]int{}}
}

// How often a message of this name had come before.
func (i *inbox) add(name string, message fields) int {
	i.lock.Lock()
	defer i.lock.Unlock()
	i.messages = append(i.messages, message)
	i.names[name]++
	return i.names[name] - 1
}

func (i *inbox) count(calls bool) int {
	i.lock.Lock()
	defer i.lock.Unlock()
	if calls {
		return len(i.messages)
	}
	return len(i.names)
}

// All messages, once there are `count` of different names, or with `calls` so many of any.
func (i *inbox) take(o options) []fields {
	deadline := time.Now().Add(o.duration("timeoutMs", 30_000))
	for i.count(o.text("calls", "") == "true") < o.number("count", 0) && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	i.lock.Lock()
	defer i.lock.Unlock()
	return append([]fields{}, i.messages...)
}
