package main

import (
	"context"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Answers requests: a push consumer with a producer of its own; notes what became of each answer.
type responder struct {
	lock     sync.Mutex
	producer rocketmq.Producer
	replies  []fields
}

var responders = map[string]*responder{}

func startResponder(o options) (any, error) {
	name := o.text("name", "")
	sender, err := rocketmq.NewProducer(
		producer.WithGroupName(o.text("group", name)+"-replies"),
		producer.WithInstanceName(name+"-replies"),
		producer.WithNsResolver(primitive.NewPassthroughResolver(o.namesrv())),
		producer.WithSendMsgTimeout(sendTimeout),
		producer.WithCredentials(o.credentials()),
	)
	if err != nil {
		return nil, err
	}
	receiver, err := rocketmq.NewPushConsumer(consumerOptions(o)...)
	if err != nil {
		return nil, err
	}
	started := &responder{producer: sender}
	listener := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			started.answer(ctx, message)
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := receiver.Subscribe(o.text("topic", ""), selector(o), listener); err != nil {
		return nil, err
	}
	responders[name] = started
	stoppers[name] = func() error {
		if err := receiver.Shutdown(); err != nil {
			return err
		}
		return sender.Shutdown()
	}
	if err := sender.Start(); err != nil {
		return nil, err
	}
	return true, receiver.Start()
}

func (r *responder) answer(ctx context.Context, request *primitive.MessageExt) {
	described := describeReceived(request)
	reply, err := consumer.CreateReplyMessage(request, nil)
	if err == nil {
		// This version of the client reads properties from the body that it is given, and sends none.
		reply.Body = []byte("reply-to-" + string(request.Body))
		reply.WithProperty("answers", request.MsgId)
		var result *primitive.SendResult
		if result, err = r.producer.SendSync(ctx, reply); err == nil {
			described["result"] = statusNames[result.Status]
		}
	}
	if err != nil {
		described["result"] = err.Error()
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.replies = append(r.replies, described)
}

func request(o options) (any, error) {
	message := newMessage(o, 0)
	timeout := time.Duration(o.number("timeoutMs", 10_000)) * time.Millisecond
	reply, err := producers[o.text("producer", "")].Request(context.Background(), timeout, message)
	if err != nil {
		return nil, err
	}
	described := fields{"body": string(reply.Body), "topic": reply.Topic, "properties": reply.GetProperties()}
	return fields{"reply": described, "msgId": message.GetProperty("UNIQ_KEY")}, nil
}

func replies(o options) (any, error) {
	chosen := responders[o.text("responder", "")]
	deadline := time.Now().Add(time.Duration(o.number("timeoutMs", 60_000)) * time.Millisecond)
	for {
		chosen.lock.Lock()
		found := append([]fields{}, chosen.replies...)
		chosen.lock.Unlock()
		if len(found) >= o.number("count", 1) || time.Now().After(deadline) {
			return found, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}
