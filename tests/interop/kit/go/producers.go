package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const sendTimeout = 10 * time.Second

var producers = map[string]rocketmq.Producer{}

var selectors = map[string]func() producer.QueueSelector{
	"turns": producer.NewRoundRobinQueueSelector,
	"queue": producer.NewManualQueueSelector,
	"hash":  producer.NewHashQueueSelector,
}

// The way in which a producer chooses queues is set when it starts: selector=turns, queue or hash.
func startProducer(o options) (any, error) {
	name := o.text("name", "")
	chosen := []producer.Option{
		producer.WithGroupName(o.text("group", name)),
		producer.WithInstanceName(name),
		producer.WithNsResolver(primitive.NewPassthroughResolver(o.namesrv())),
		producer.WithSendMsgTimeout(sendTimeout),
		producer.WithCompressMsgBodyOverHowmuch(o.number("compressOver", 4096)),
		producer.WithQueueSelector(selectors[o.text("selector", "turns")]()),
		producer.WithCredentials(o.credentials()),
	}
	if o.text("trace", "") == "true" {
		chosen = append(chosen, producer.WithTrace(&primitive.TraceConfig{
			GroupName:    name + "-traces",
			NamesrvAddrs: o.namesrv(),
			Credentials:  o.credentials(),
		}))
	}
	started, err := rocketmq.NewProducer(chosen...)
	if err != nil {
		return nil, err
	}
	producers[name] = started
	stoppers[name] = started.Shutdown
	return true, started.Start()
}

func send(o options) (any, error) {
	messages := []*primitive.Message{}
	for number := 0; number < o.number("count", 1); number++ {
		messages = append(messages, newMessage(o, o.number("first", 0)+number))
	}
	chosen := producers[o.text("producer", "")]
	switch o.text("mode", "") {
	case "async":
		return sendAsync(chosen, messages)
	case "batch":
		result, err := chosen.SendSync(context.Background(), messages...)
		if err != nil {
			return nil, err
		}
		sent := []fields{}
		for number, message := range messages {
			sent = append(sent, describeSent(message, result, number))
		}
		return sent, nil
	default:
		return sendEach(chosen, messages, o.text("mode", "") == "oneway")
	}
}

func sendEach(chosen rocketmq.Producer, messages []*primitive.Message, oneway bool) (any, error) {
	sent := []fields{}
	for _, message := range messages {
		var result *primitive.SendResult
		var err error
		if oneway {
			err = chosen.SendOneWay(context.Background(), message)
		} else {
			result, err = chosen.SendSync(context.Background(), message)
		}
		if err != nil {
			return nil, err
		}
		sent = append(sent, describeSent(message, result, 0))
	}
	return sent, nil
}

func sendAsync(chosen rocketmq.Producer, messages []*primitive.Message) (any, error) {
	sent := make([]fields, len(messages))
	problems := make([]error, len(messages))
	var open sync.WaitGroup
	open.Add(len(messages))
	for number, message := range messages {
		number, message := number, message
		answered := func(_ context.Context, result *primitive.SendResult, err error) {
			defer open.Done()
			if problems[number] = err; err == nil {
				sent[number] = describeSent(message, result, 0)
			}
		}
		if err := chosen.SendAsync(context.Background(), answered, message); err != nil {
			return nil, err
		}
	}
	open.Wait()
	for _, problem := range problems {
		if problem != nil {
			return nil, problem
		}
	}
	return sent, nil
}

func newMessage(o options, number int) *primitive.Message {
	name := fmt.Sprintf("%s-%d", o.text("label", ""), number)
	tags := strings.Split(o.text("tags", "TagA"), ",")
	message := primitive.NewMessage(o.text("topic", ""), newBody(name, o.number("size", 0)))
	message.WithTag(tags[number%len(tags)]).WithKeys([]string{"key-" + name})
	message.WithProperty("number", strconv.Itoa(number))
	message.WithProperty("words", "für 东京 = \"x\"")
	levels := strings.Split(o.text("delayLevels", ""), ",")
	if level, err := strconv.Atoi(levels[number%len(levels)]); err == nil {
		message.WithDelayTimeLevel(level)
	}
	putProperties(o, message, number)
	message.WithShardingKey(strconv.Itoa(number % o.number("keys", 1)))
	message.Queue = &primitive.MessageQueue{
		Topic: message.Topic, BrokerName: o.text("broker", ""), QueueId: o.number("queue", 0),
	}
	return message
}

func newBody(name string, size int) []byte {
	if size <= len(name) {
		return []byte(name)
	}
	body := bytes.Repeat([]byte("x"), size)
	copy(body, name+"|")
	return body
}
