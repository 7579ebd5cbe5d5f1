package main

import (
	"context"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Says how transactions end, and notes what it was asked. How one ends is written on its message: in property
// `local` what the sender says, in property `checked` what any producer of the group says when it is asked. Both
// are commit, rollback or unknown.
type checks struct {
	lock  sync.Mutex
	asked []fields
}

var states = map[string]primitive.LocalTransactionState{
	"commit":   primitive.CommitMessageState,
	"rollback": primitive.RollbackMessageState,
	"unknown":  primitive.UnknowState,
}

var stateNames = map[primitive.LocalTransactionState]string{
	primitive.CommitMessageState:   "COMMIT_MESSAGE",
	primitive.RollbackMessageState: "ROLLBACK_MESSAGE",
	primitive.UnknowState:          "UNKNOW",
}

func (c *checks) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return states[message.GetProperty("local")]
}

func (c *checks) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	c.lock.Lock()
	defer c.lock.Unlock()
	described := describeReceived(message)
	described["transactionId"] = message.TransactionId
	described["askedMs"] = time.Now().UnixMilli()
	c.asked = append(c.asked, described)
	return states[message.GetProperty("checked")]
}

func (c *checks) take() []fields {
	c.lock.Lock()
	defer c.lock.Unlock()
	return append([]fields{}, c.asked...)
}

var listeners = map[string]*checks{}
var transactionProducers = map[string]rocketmq.TransactionProducer{}

func startTransactions(o options) (any, error) {
	name := o.text("name", "")
	listener := &checks{}
	started, err := rocketmq.NewTransactionProducer(
		listener,
		producer.WithGroupName(o.text("group", name)),
		producer.WithInstanceName(name),
		producer.WithNsResolver(primitive.NewPassthroughResolver(o.namesrv())),
		producer.WithSendMsgTimeout(sendTimeout),
		producer.WithQueueSelector(producer.NewRoundRobinQueueSelector()),
		producer.WithCredentials(o.credentials()),
	)
	if err != nil {
		return nil, err
	}
	listeners[name] = listener
	transactionProducers[name] = started
	stoppers[name] = started.Shutdown
	return true, started.Start()
}

func sendTransactions(o options) (any, error) {
	sent := []fields{}
	for number := 0; number < o.number("count", 1); number++ {
		message := newMessage(o, number)
		message.WithProperty("local", o.text("local", "unknown"))
		message.WithProperty("checked", o.text("checked", "unknown"))
		if seconds := o.text("immunitySeconds", ""); seconds != "" {
			message.WithProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", seconds)
		}
		chosen := transactionProducers[o.text("producer", "")]
		result, err := chosen.SendMessageInTransaction(context.Background(), message)
		if err != nil {
			return nil, err
		}
		described := describeSent(message, result.SendResult, 0)
		described["transactionId"] = message.TransactionId
		described["state"] = stateNames[result.State]
		sent = append(sent, described)
	}
	return sent, nil
}

// All that the broker asked a producer, once these are so many questions or the time is over.
func takeChecks(o options) (any, error) {
	listener := listeners[o.text("producer", "")]
	deadline := time.Now().Add(time.Duration(o.number("timeoutMs", 30_000)) * time.Millisecond)
	for len(listener.take()) < o.number("count", 0) && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	return listener.take(), nil
}

// Properties that a command gives to its messages: NAME:VALUE,VALUE,...;NAME:..., each message the next value.
// Where that is empty, it has no such property.
func putProperties(o options, message *primitive.Message, number int) {
	for _, property := range strings.Split(o.text("properties", ""), ";") {
		name, all, found := strings.Cut(property, ":")
		values := strings.Split(all, ",")
		if value := values[number%len(values)]; found && value != "" {
			message.WithProperty(name, value)
		}
	}
}
